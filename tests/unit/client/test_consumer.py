"""A consumer whose leaders move or fail, against brokers that share one log."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from client import consumer as consumer_module
from client.cluster_client import EARLIEST, LATEST
from client.consumer import Consumer, PositionReset
from client.errors import Refused
from client.leaders import Leader, LeaderCache
from client.offsets import led_partitions, partitions_of
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.transport.client import ConnectionLost
from testkit.memory.cluster import batch, cluster, connected


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "RETRY_WAIT_MS", 1.0)


async def read(consumer: Consumer, count: int, polls_max: int = 20) -> list[bytes | None]:
    found: list[bytes | None] = []
    for _ in range(polls_max):
        found += [received.value for received in await consumer.poll(count - len(found))]
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records after {polls_max} polls")


@pytest.mark.parametrize("hints", [True, False])
async def test_consumer_follows_leader_to_new_broker(hints: bool) -> None:
    """KIP-951: if the refusal names the new leader, the consumer requests no metadata."""
    async with cluster() as world, connected(world) as client:
        world.hints = hints
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(client)
        consumer.assign({("t", 0): 0})
        assert await read(consumer, 1) == [b"a"]
        asked = world.metadata_asked
        world.leader = Leader(1, 6)
        await client.produce("t", 0, batch(b"b"))
        after_produce = world.metadata_asked
        client.cache.leaders["t", 0] = Leader(0, 5)
        assert await read(consumer, 1) == [b"b"]
        assert client.cache.leaders["t", 0] == Leader(1, 6)
        assert (world.metadata_asked == after_produce) is hints
        assert (after_produce == asked) is hints


async def test_a_leader_that_dies_is_replaced() -> None:
    async with cluster(3) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(client)
        consumer.assign({("t", 0): 0})
        assert await read(consumer, 1) == [b"a"]
        await world.servers[0].close(grace_ms=0)
        del world.servers[0]
        world.leader = Leader(2, 7)
        await client.produce("t", 0, batch(b"b"))
        assert await read(consumer, 1) == [b"b"]


async def test_consumer_without_leader_raises_after_timeout() -> None:
    async with cluster(2) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(client, leader_timeout_ms=0.0)
        consumer.assign({("t", 0): 0})
        await read(consumer, 1)
        await world.servers[0].close(grace_ms=0)
        with pytest.raises((OSError, ApiError)):
            await read(consumer, 1)


async def test_errors_that_waiting_cannot_cure_end_it() -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(client)
        consumer.assign({("t", 0): 0})
        world.errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(Refused, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
            await read(consumer, 1)


async def test_consumer_retries_broker_with_old_metadata() -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(client)
        consumer.assign({("t", 0): 0})
        world.errors = [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE]
        assert await read(consumer, 1) == [b"a"]


@pytest.mark.parametrize(("position", "goes_on"), [(99, 1), (-5, 0)])
async def test_a_position_that_is_gone_goes_on_at_the_nearest_end(
    position: int, goes_on: int
) -> None:
    resets: list[PositionReset] = []
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(client, on_reset=resets.append)
        consumer.assign({("t", 0): position})
        world.errors = [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert await consumer.poll() == []
        assert consumer.positions == {("t", 0): goes_on}
    assert resets == [("t", 0, position, 0, 1, goes_on)]


async def test_consumer_reads_led_partition_and_reports_leaderless_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One leaderless partition delays no other one; EARLIEST is found once a leader answers."""
    monkeypatch.setattr(consumer_module, "NOTICE_MS", 0.0)
    waiting: list[tuple[list[tuple[str, int]], int]] = []
    async with cluster(1) as world, connected(world) as client:
        world.leaderless = 1
        await client.produce("t", 0, batch(b"a", b"b"))
        consumer = Consumer(
            client,
            leader_timeout_ms=inf,
            on_waiting=lambda keys, node: waiting.append((list(keys), node)),
        )
        consumer.assign({("t", 0): EARLIEST, ("t", 1): EARLIEST})
        assert await read(consumer, 2) == [b"a", b"b"]
        assert consumer.positions == {("t", 0): 2, ("t", 1): EARLIEST}
        await consumer.poll(timeout_ms=10.0)
    assert waiting.count(([("t", 1)], -1)) == 1


async def test_consumer_without_any_leader_raises_after_timeout() -> None:
    async with cluster(1) as world, connected(world) as client:
        world.leaderless = 1
        await client.topic("t")
        consumer = Consumer(client, leader_timeout_ms=0.0)
        consumer.assign({("t", 1): LATEST})
        with pytest.raises(ApiError, match="t-1 has no leader"):
            await read(consumer, 1)


async def test_led_partitions_stops_waiting_for_others_at_timeout() -> None:
    async with cluster(1) as world, connected(world) as client:
        world.leaderless = 2
        partitions = await partitions_of(client, ["t"])
        assert partitions == [("t", 0), ("t", 1), ("t", 2)]
        assert await led_partitions(client, partitions, 120.0) == [("t", 0)]
        world.leaderless = 0
        assert await led_partitions(client, [("t", 0)], 0.0) == [("t", 0)]


class TwoLeaders:
    """A stand-in for a client: node 0 leads `t-0`, node 1 `t-1`, each with two records."""

    def __init__(self) -> None:
        self.cache = LeaderCache()
        self.cache.topic_ids["t"] = bytes(range(16))
        for node_id in (0, 1):
            self.cache.brokers[node_id] = ("h", node_id)
            self.cache.leaders["t", node_id] = Leader(node_id, 1)
        self.answers: dict[int, ErrorCode | asyncio.Future[None]] = {}
        self.waits_ms: list[int] = []
        self.asked: list[int] = []
        self.silent: set[int] = set()
        self.second_asked = asyncio.Event()

    async def topic(self, *_: object) -> None:
        return None

    async def find_broker(self, *_: object) -> None:
        return None

    async def request_broker(
        self, node_id: int, request: FetchRequest, *_: Any, version: int | None
    ) -> FetchResponse:
        self.waits_ms.append(request.max_wait_ms)
        self.asked.append(node_id)
        if node_id in self.silent:
            raise ConnectionLost("no answer")
        code = self.answers.get(node_id, ErrorCode.NONE)
        if isinstance(code, asyncio.Future):
            self.second_asked.set()
            await code
        one = FetchResponse.PartitionData(
            partition_index=node_id,
            error_code=code if isinstance(code, ErrorCode) else ErrorCode.NONE,
            records=batch(b"%d-0" % node_id, b"%d-1" % node_id),
        )
        topic = FetchResponse.FetchableTopicResponse(topic_id=bytes(range(16)), partitions=[one])
        return FetchResponse(responses=[topic])


async def test_silent_leader_is_fetched_last() -> None:
    """A partition whose leader does not answer delays the others by one poll at most."""
    client, consumer = two_leaders()
    client.silent.add(0)
    assert [one.value for one in await consumer.poll()] == [b"1-0", b"1-1"]
    client.asked.clear()
    while 0 not in client.asked:
        await consumer.poll()
    assert client.asked.index(1) < client.asked.index(0)


def two_leaders() -> tuple[TwoLeaders, Consumer]:
    client = TwoLeaders()
    consumer = Consumer(client)  # type: ignore[arg-type]
    consumer.assign({("t", 0): 0, ("t", 1): 0})
    return client, consumer


async def test_poll_fetches_from_every_leader_and_waits_only_for_first() -> None:
    client, consumer = two_leaders()
    assert [one.value for one in await consumer.poll()] == [b"0-0", b"0-1", b"1-0", b"1-1"]
    assert consumer.positions == {("t", 0): 2, ("t", 1): 2}
    assert client.waits_ms == [500, 0]


@pytest.mark.parametrize(
    ("records_max", "positions"), [(1, (1, 0)), (2, (2, 0)), (3, (2, 1)), (4, (2, 2)), (9, (2, 2))]
)
async def test_positions_are_behind_what_was_returned(
    records_max: int, positions: tuple[int, int]
) -> None:
    _, consumer = two_leaders()
    assert len(await consumer.poll(records_max)) == min(records_max, 4)
    assert (consumer.positions["t", 0], consumer.positions["t", 1]) == positions


async def test_an_error_waits_until_what_was_found_is_returned() -> None:
    client, consumer = two_leaders()
    client.answers[1] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [one.value for one in await consumer.poll()] == [b"0-0", b"0-1"]
    assert consumer.positions == {("t", 0): 2, ("t", 1): 0}
    with pytest.raises(Refused, match="t-1: TOPIC_AUTHORIZATION_FAILED"):
        await consumer.poll()


async def test_a_poll_that_is_cancelled_has_taken_nothing() -> None:
    client, consumer = two_leaders()
    client.answers[1] = asyncio.get_running_loop().create_future()
    polling = asyncio.create_task(consumer.poll())
    await client.second_asked.wait()
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert consumer.positions == {("t", 0): 0, ("t", 1): 0}
