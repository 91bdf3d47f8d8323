"""The idempotent producer against a broker that loses answers, moves, refuses and forgets (T1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from client.cluster_client import ClusterClient
from client.producer import IdempotentProducer, NotProduced
from protocol.api_keys import ApiKey
from protocol.batch import Record, iter_batches, read_records
from protocol.batch.header import BatchHeader
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.server import Server
from runtime.clock import SystemClock
from testkit.memory.sockets import on_both_loops

Plan = Callable[[int], ErrorCode | str | None]
"""The fate of the n-th Produce: an error, "lose" (append, no answer), "drop" (neither)."""


class Broker:
    """A leader of `t-0` with Kafka's rules about sequences."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.batches: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.next = (-1, 0)
        self.received: list[BatchHeader] = []
        self.plan: Plan = lambda number: None
        self.ids = 0
        self.table = HandlerTable()
        self.table.serve_api_versions()
        self.table.register(ApiKey.METADATA, self.metadata)
        self.table.register(ApiKey.PRODUCE, self.produce)
        self.table.register(ApiKey.INIT_PRODUCER_ID, self.init)
        self.server: Server | None = None

    def metadata(self, _: RequestContext, request: MetadataRequest) -> MetadataResponse:
        assert self.server is not None
        host, port = self.server.address
        return MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=0, host=host, port=port)],
            topics=[
                MetadataResponse.MetadataResponseTopic(
                    name="t",
                    topic_id=bytes(range(16)),
                    partitions=[
                        MetadataResponse.MetadataResponsePartition(leader_id=0, leader_epoch=1)
                    ],
                )
                for _ in request.topics or []
            ],
        )

    def init(self, _: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
        assert request.transactional_id is None
        self.ids += 1
        return InitProducerIdResponse(producer_id=999 + self.ids, producer_epoch=0)

    async def produce(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert records is not None and not isinstance(records, list)
        data = bytes(records)
        ((header, _),) = iter_batches(data)
        self.received.append(header)
        what = self.plan(len(self.received))
        code, offset = ErrorCode.NONE, -1
        if isinstance(what, ErrorCode):
            code = what
        elif what != "drop":
            code, offset = self.append(header, data)
        if isinstance(what, str):
            context.connection.close("the test loses it")
        one = ProduceResponse.PartitionProduceResponse(error_code=code, base_offset=offset)
        return ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    topic_id=request.topic_data[0].topic_id, partition_responses=[one]
                )
            ]
        )

    def append(self, header: BatchHeader, data: bytes) -> tuple[ErrorCode, int]:
        key = (header.producer_id, header.producer_epoch)
        for sequence, offset in self.batches.get(key, [])[-5:]:
            if sequence == header.base_sequence:
                return ErrorCode.NONE, offset
        epoch, expected = self.next
        if header.producer_epoch != epoch:
            expected = 0
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.next = (header.producer_epoch, expected + header.record_count)
        offset = sum(len(values(one)) for one in self.log)
        self.batches.setdefault(key, []).append((header.base_sequence, offset))
        self.log.append(data)
        return ErrorCode.NONE, offset

    @property
    def values(self) -> list[bytes]:
        return [value for one in self.log for value in values(one)]


def values(data: bytes) -> list[bytes]:
    return [record.value or b"" for record in read_records(data)]


def records(*texts: str) -> list[Record]:
    return [Record(0, 0, None, text.encode()) for text in texts]


@asynccontextmanager
async def producing(**options: float) -> AsyncIterator[tuple[Broker, IdempotentProducer]]:
    broker = Broker()
    broker.server = Server(broker.table, clock=SystemClock(), listener="PLAINTEXT")
    await broker.server.start("127.0.0.1", 0)
    client = await ClusterClient.connect([broker.server.address])
    producer = IdempotentProducer(client, **options)  # type: ignore[arg-type]
    await producer.start()
    try:
        yield broker, producer
    finally:
        await producer.close()
        await client.close()
        await broker.server.close(grace_ms=100)


async def send_all(producer: IdempotentProducer, count: int) -> list[object]:
    futures = [producer.send("t", 0, records(f"{n}")) for n in range(count)]
    return list(await asyncio.gather(*futures, return_exceptions=True))


def offsets(results: list[object]) -> list[int]:
    return [getattr(result, "base_offset", None) for result in results]  # type: ignore[misc]


@on_both_loops
async def test_batches_carry_the_producers_id_and_dense_sequences() -> None:
    async with producing() as (broker, producer):
        futures = [producer.send("t", 0, records("a", "b")), producer.send("t", 0, records("c"))]
        assert offsets(await asyncio.gather(*futures)) == [0, 2]
        await producer.send("t", 0, records("d"))
    assert [(h.producer_id, h.producer_epoch, h.base_sequence) for h in broker.received] == [
        (1000, 0, 0),
        (1000, 0, 2),
        (1000, 0, 3),
    ]


@on_both_loops
async def test_a_lost_answer_is_no_second_record() -> None:
    async with producing() as (broker, producer):
        broker.plan = lambda number: "lose" if number in (2, 5, 7) else None
        assert offsets(await send_all(producer, 12)) == list(range(12))
    assert broker.values == [b"%d" % n for n in range(12)]
    assert producer.starts_over == 0


@on_both_loops
async def test_batches_behind_a_failed_one_are_refused_and_sent_again_in_order() -> None:
    async with producing() as (broker, producer):
        broker.plan = lambda number: ErrorCode.NOT_LEADER_OR_FOLLOWER if number == 2 else None
        assert offsets(await send_all(producer, 8)) == list(range(8))
    assert broker.values == [b"%d" % n for n in range(8)]
    assert producer.starts_over == 0


@on_both_loops
async def test_a_request_that_was_lost_is_sent_again() -> None:
    async with producing() as (broker, producer):
        broker.plan = lambda number: "drop" if number in (1, 2) else None
        assert offsets(await send_all(producer, 6)) == list(range(6))


@on_both_loops
async def test_a_batch_whose_time_is_over_is_unknown_and_the_lane_goes_on_in_a_new_epoch() -> None:
    async with producing(delivery_timeout_ms=200.0) as (broker, producer):
        broker.plan = lambda number: ErrorCode.REQUEST_TIMED_OUT
        (failed,) = await send_all(producer, 1)
        assert isinstance(failed, NotProduced)
        assert not failed.certain and failed.name == "REQUEST_TIMED_OUT"
        broker.plan = lambda number: None
        assert (await producer.send("t", 0, records("next"))).base_offset == 0
    assert (broker.received[-1].producer_epoch, broker.received[-1].base_sequence) == (1, 0)


@on_both_loops
async def test_a_batch_that_was_never_written_has_failed_for_certain() -> None:
    async with producing(delivery_timeout_ms=200.0) as (broker, producer):
        broker.plan = lambda number: ErrorCode.NOT_ENOUGH_REPLICAS
        (failed,) = await send_all(producer, 1)
    assert isinstance(failed, NotProduced) and failed.certain


@on_both_loops
async def test_one_uncertain_try_makes_the_batch_unknown_whatever_follows() -> None:
    async with producing(delivery_timeout_ms=300.0) as (broker, producer):
        broker.plan = lambda number: "lose" if number == 1 else ErrorCode.NOT_ENOUGH_REPLICAS
        (failed,) = await send_all(producer, 1)
    assert isinstance(failed, NotProduced) and not failed.certain
    assert broker.values == [b"0"]


@on_both_loops
async def test_a_refused_batch_fails_alone() -> None:
    async with producing() as (broker, producer):
        broker.plan = lambda number: ErrorCode.MESSAGE_TOO_LARGE if number == 2 else None
        results = await send_all(producer, 5)
        assert isinstance(results[1], NotProduced) and results[1].certain
        assert isinstance(results[1].cause, ApiError)
    assert broker.values == [b"0", b"2", b"3", b"4"]


@on_both_loops
async def test_a_broker_that_forgot_the_producer_gets_a_new_epoch() -> None:
    async with producing() as (broker, producer):
        await send_all(producer, 3)
        broker.next, broker.batches = (-1, 0), {}
        assert (await producer.send("t", 0, records("after"))).base_offset == 3
        assert producer.starts_over == 1
    assert broker.received[-1].producer_epoch == 1


@on_both_loops
async def test_used_up_epochs_bring_a_new_id() -> None:
    async with producing() as (broker, producer):
        await send_all(producer, 1)
        lane = producer._lanes["t", 0]
        lane.producer = lane.producer._replace(epoch=2**15 - 1)
        broker.next = (2**15 - 1, 7)
        await producer.send("t", 0, records("after"))
    assert broker.received[-1].producer_id == 1001


@on_both_loops
async def test_sequences_go_on_at_zero_after_the_last_one() -> None:
    """KAFKA-7692: sequences wrap from 2**31 - 1 to 0."""
    async with producing() as (broker, producer):
        await send_all(producer, 1)
        lane = producer._lanes["t", 0]
        lane.producer = lane.producer._replace(sequence=2**31 - 1)
        broker.next = (0, 2**31 - 1)
        await producer.send("t", 0, records("last"))
        assert lane.producer.sequence == 0


async def test_acks_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="acks 0"):
        IdempotentProducer(None, acks=0)  # type: ignore[arg-type]


@on_both_loops
async def test_producer_close_with_unanswered_batch_fails_its_future() -> None:
    async with producing() as (broker, producer):
        arrived = asyncio.Event()

        def refuse(_: int) -> ErrorCode:
            arrived.set()
            return ErrorCode.REQUEST_TIMED_OUT

        broker.plan = refuse
        future = producer.send("t", 0, records("x"))
        await arrived.wait()
        await producer.close()
        with pytest.raises(NotProduced):
            await future
