"""The short way of a produce request compared with the general one, on two equal brokers."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch.records import Producer
from protocol.compression import Codec
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.transport.dispatch import CloseConnection, FramedReply, reply_parts
from testkit.memory.broker import NODE, OTHER, Harness, batch, topic_id

TOPICS = ("t", "wait", "time", "flush", "compact", "__consumer_offsets", "nowhere")
BATCHES = (
    batch(b"a"),
    batch(b"a", b"b", b"c"),
    batch(b"keyed", key=b"k"),
    batch(b"z" * 400, compression=Codec.ZSTD),
    batch(b"x" * 3000),
    batch(b"first", producer=Producer(7, 0, 0)),
    batch(b"second", producer=Producer(7, 0, 1)),
    batch(b"far", producer=Producer(7, 0, 9)),
    batch(b"late", timestamp=1_900_000_000_000),
    batch(b"a")[:-1],
    batch(b"a")[:70] + b"?" + batch(b"a")[71:],
    b"",
    None,
)


def general_only(h: Harness) -> None:
    """Remove the short way from a broker."""
    api = h.table.entries[0].handler.__self__  # type: ignore[attr-defined]
    api._one_batch = lambda *_: None


def broker() -> Harness:
    h = Harness()
    h.create_topic("t", number=1, partitions=2)
    h.create_topic("wait", number=2, replicas=[NODE, OTHER], isr=[NODE, OTHER])
    h.create_topic("time", number=3, configs={"message.timestamp.type": "LogAppendTime"})
    h.create_topic("flush", number=4, configs={"flush.messages": "2"})
    h.create_topic(
        "compact", number=5, configs={"cleanup.policy": "compact", "max.message.bytes": "2000"}
    )
    h.create_topic("__consumer_offsets", number=6)
    return h


def ask(h: Harness, version: int, topic: int, index: int, acks: int, records: Any) -> Any:
    """Return the answer's bytes, or the outcome in place of one."""
    data = ProduceRequest.TopicProduceData(
        name=TOPICS[topic] if version < 13 else "",
        topic_id=bytes(16) if version < 13 else topic_id(topic + 1),
        partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)],
    )
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
    entry = h.table.entries[0]
    try:
        reply = entry.handler(h.request_context(entry.api, version), request)
    except CloseConnection as close:
        return str(close)
    if reply is None or isinstance(reply, asyncio.Future):
        return type(reply).__name__
    return b"".join(bytes(part) for part in reply_parts(reply, entry, version, 5)[1])


def facts(h: Harness) -> list[Any]:
    out: list[Any] = []
    for partition in h.replicas:
        log = partition.log
        counters = partition.counters
        out.append(
            (
                partition.topic,
                partition.index,
                log.log_end_offset,
                log.high_watermark,
                log.read(0, 1 << 20, max_offset=log.log_end_offset),
                [getattr(counters, name) for name in counters.__slots__],
                log.segments.active.time_index.entries(),
                log.segments.active.offset_index.entries(),
            )
        )
    return out


requests = st.tuples(
    st.integers(3, 13),
    st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6]),
    st.integers(0, 2),
    st.sampled_from([-1, -1, 1, 1, 0, 2]),
    st.integers(0, len(BATCHES) - 1),
    st.booleans(),
)


@given(st.lists(requests, max_size=25))
@settings(max_examples=60, deadline=None)
def test_both_ways_answer_and_store_the_same(
    steps: list[tuple[int, int, int, int, int, bool]],
) -> None:
    async def run() -> None:
        short, general = broker(), broker()
        general_only(general)
        for version, topic, index, acks, number, in_place in steps:
            content = BATCHES[number]
            answers = []
            for h in (short, general):
                # A view of a receive buffer is patched in place, bytes are not.
                view = memoryview(bytearray(content)) if content and in_place else content
                answers.append(ask(h, version, topic, index, acks, view))
            assert answers[0] == answers[1]
            assert short.peer.closed == general.peer.closed
        assert facts(short) == facts(general)

    asyncio.run(run())


def test_the_two_ways_are_two() -> None:
    async def run() -> None:
        short, general = broker(), broker()
        general_only(general)
        entry = short.table.entries[0]
        for h, kind in ((short, FramedReply), (general, ProduceResponse)):
            data = ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[ProduceRequest.PartitionProduceData(index=0, records=BATCHES[0])],
            )
            request = ProduceRequest(acks=-1, topic_data=[data])
            reply = h.table.entries[0].handler(h.request_context(entry.api, 9), request)
            assert type(reply) is kind

    asyncio.run(run())
