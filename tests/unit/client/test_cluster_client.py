"""The cluster client against brokers that each lead a part of one in-memory log."""

from __future__ import annotations

import asyncio

import pytest

from client.cluster_client import EARLIEST, ClusterClient
from client.errors import Refused
from client.leaders import Leader, LeaderCache
from protocol.batch import read_records
from protocol.errors import ApiError, ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.transport.client import ConnectionLost
from testkit.memory.cluster import TOPIC_ID, batch, cluster, connected
from testkit.memory.sockets import on_both_loops


@on_both_loops
@pytest.mark.parametrize("produce_max", [None, 9])
async def test_produce_fetch_list(produce_max: int | None) -> None:
    async with cluster(produce_max=produce_max) as world, connected(world) as client:
        first = await client.produce("t", 0, batch(b"a", b"b"))
        second = await client.produce("t", 0, batch(b"c"))
        assert (first.base_offset, second.base_offset) == (0, 2)
        fetched = await client.fetch("t", 0, 0)
        values = [record.value for record in read_records(fetched.records)]
        assert values == [b"a", b"b", b"c"]
        assert fetched.high_watermark == 3
        assert fetched.aborted == [(7, 3)]
        assert (await client.list_offset("t", 0)).offset == 3
        assert (await client.list_offset("t", 0, EARLIEST)).offset == 0
        assert world.metadata_asked == 2
        assert client.cache.cluster_id == "c"


@on_both_loops
async def test_acks_0() -> None:
    async with cluster() as world, connected(world) as client:
        produced = await client.produce("t", 0, batch(b"a"), acks=0)
        assert produced.base_offset == -1
        assert (await client.list_offset("t", 0)).offset == 1


@on_both_loops
@pytest.mark.parametrize("hints", [True, False])
async def test_the_leader_moves(hints: bool) -> None:
    async with cluster() as world, connected(world) as client:
        world.hints = hints
        await client.produce("t", 0, batch(b"a"))
        asked = world.metadata_asked
        world.leader = Leader(1, 6)
        await client.produce("t", 0, batch(b"b"))
        assert world.produced_at == [0, 1]
        assert client.cache.leaders["t", 0] == Leader(1, 6)
        world.leader = Leader(0, 7)
        await client.fetch("t", 0, 0)
        assert client.cache.leaders["t", 0] == Leader(0, 7)
        # KIP-951: a client that got the new leader in the refusal requests no metadata
        assert (world.metadata_asked == asked) is hints


@on_both_loops
async def test_a_leader_that_refuses_too_is_met_with_a_pause_and_fresh_metadata() -> None:
    """KIP-951: the client retries at once on a new epoch, with backoff on the same one."""
    async with cluster() as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        asked = world.metadata_asked
        world.leader = Leader(1, 6)
        # broker 0 refuses and names 1; broker 1 refuses and names itself, in the epoch known now
        world.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await client.produce("t", 0, batch(b"b"))
        # a backoff of 50 ms; uvloop's clock counts whole milliseconds
        assert loop.time() - begun > 0.04
        assert world.produced_at == [0, 1]
        assert world.metadata_asked == asked + 1


@on_both_loops
async def test_a_hint_is_kept_against_staler_metadata() -> None:
    async with cluster() as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        world.leader = Leader(1, 6)
        await client.produce("t", 0, batch(b"b"))
        # no broker has learned of the election yet, nor of node 1
        world.beliefs = {0: Leader(0, 5), 1: Leader(0, 5)}
        address = client.cache.brokers[1]
        gone = world.servers.pop(1)
        await client.metadata(["t"])
        world.servers[1] = gone
        assert client.cache.leaders["t", 0] == Leader(1, 6)
        assert client.cache.brokers[1] == address


@on_both_loops
@pytest.mark.parametrize("believers", [1, 2])
async def test_client_finds_new_leader_despite_brokers_with_old_metadata(believers: int) -> None:
    """F9: brokers cut off from the controllers alone return old metadata indefinitely.

    One of them accepts requests that are never committed.
    """
    async with cluster(3) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        world.hints = False
        world.leader = Leader(2, 6)
        world.beliefs = {node: Leader(0, 5) for node in range(believers)}
        await client.produce("t", 0, batch(b"b"), timeout_ms=10_000.0)
        assert world.produced_at == [0, 2]


@on_both_loops
async def test_an_older_answer_does_not_lead_back() -> None:
    async with cluster() as world, connected(world) as client:
        world.leader = Leader(1, 6)
        await client.produce("t", 0, batch(b"a"))
        world.beliefs = {0: Leader(0, 5), 1: Leader(0, 5)}
        world.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        await client.produce("t", 0, batch(b"b"))
        assert world.produced_at == [1, 1]


@on_both_loops
async def test_retriable_errors_are_tried_again_others_not() -> None:
    async with cluster() as world, connected(world) as client:
        world.errors = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.LEADER_NOT_AVAILABLE]
        assert (await client.produce("t", 0, batch(b"a"))).base_offset == 0
        world.errors = [ErrorCode.MESSAGE_TOO_LARGE]
        with pytest.raises(ApiError) as caught:
            await client.produce("t", 0, batch(b"b"))
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(ApiError) as caught:
            await client.fetch("no/topic", 0, 0)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        world.errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 100
        with pytest.raises(ApiError) as caught:
            await client.produce("t", 0, batch(b"b"), timeout_ms=120)
        assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


@on_both_loops
async def test_a_broker_dies() -> None:
    async with cluster(3) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        await world.servers[0].close(grace_ms=0)
        del world.servers[0]
        world.leader = Leader(2, 7)
        await client.produce("t", 0, batch(b"b"))
        assert world.produced_at == [0, 2]
        answer = await client.request_broker(2, MetadataRequest(topics=[]))
        assert len(answer.brokers) == 2
        with pytest.raises(ApiError):
            await client.request_broker(99, MetadataRequest(topics=[]))


@on_both_loops
async def test_callers_share_a_connection() -> None:
    async with cluster(1) as world, connected(world) as client:
        await asyncio.gather(*(client.produce("t", 0, batch(b"x")) for _ in range(20)))
        assert world.end == 20
        assert world.servers[0].connection_stats.accepted == 1


@on_both_loops
async def test_connect_without_reachable_broker_raises() -> None:
    async with cluster(1) as world:
        address = world.servers[0].address
    with pytest.raises(OSError):
        await ClusterClient.connect([address], timeout_ms=100)
    with pytest.raises(ConnectionLost):
        await ClusterClient.connect([], timeout_ms=10)


@pytest.mark.parametrize(
    ("waiting", "leader"), [({"is_new": True}, 0), ({"create": True}, -1)], ids=["new", "create"]
)
async def test_topic_waits_until_known_and_new_one_for_leaders(
    waiting: dict[str, bool], leader: int
) -> None:
    async with cluster(1) as world, connected(world) as client:
        world.topic_errors = [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
        ]
        topic = await client.topic("t", **waiting)
        assert [one.leader_id for one in topic.partitions] == [leader]
        assert world.topic_errors == []


async def test_topic_with_leaderless_partition_is_described_at_once() -> None:
    """A caller needs leaders only of the partitions that it uses."""
    async with cluster(1) as world, connected(world) as client:
        world.leaderless = 1
        asked = world.metadata_asked
        topic = await client.topic("t")
        assert [one.leader_id for one in topic.partitions] == [0, -1]
        assert world.metadata_asked == asked + 1
        assert client.cache.is_led(("t", 0)) and not client.cache.is_led(("t", 1))


async def test_a_topic_that_is_not_there_is_not_waited_for() -> None:
    async with cluster(1) as world, connected(world) as client:
        world.topic_errors = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        with pytest.raises(Refused, match="topic t: UNKNOWN_TOPIC_OR_PARTITION"):
            await client.topic("t")
        assert len(world.topic_errors) == 1


def metadata_answer(topic_id: bytes, leader: int, epoch: int) -> MetadataResponse:
    partition = MetadataResponse.MetadataResponsePartition(leader_id=leader, leader_epoch=epoch)
    topic = MetadataResponse.MetadataResponseTopic(
        name="t", topic_id=topic_id, partitions=[partition]
    )
    return MetadataResponse(topics=[topic])


def test_cache_rules() -> None:
    cache = LeaderCache()
    key = ("t", 0)
    cache.learn(metadata_answer(TOPIC_ID, 1, 5))
    cache.learn(metadata_answer(TOPIC_ID, 2, 4))
    assert cache.leaders[key] == Leader(1, 5)
    cache.hint(key, Leader(-1, -1), None)
    assert not cache.hint(key, Leader(3, 5), ("h", 1))
    assert cache.leaders[key] == Leader(1, 5)
    assert not cache.hint(key, Leader(3, 6), None), "where that is nobody knows"
    assert cache.leaders[key] == Leader(1, 5)
    assert 3 not in cache.brokers
    assert cache.hint(key, Leader(3, 6), ("h", 1))
    assert cache.leaders[key] == Leader(3, 6)
    assert cache.brokers[3] == ("h", 1)
    other = bytes(15) + b"\x09"
    cache.learn(metadata_answer(other, 0, 0))
    assert cache.leaders[key] == Leader(0, 0)
    assert cache.topic_ids["t"] == other


def test_a_broker_that_is_behind_does_not_bring_a_deposed_leader_back() -> None:
    """P24: it returns the topic's id before, or no such topic, and then an older epoch."""
    cache, key, other = LeaderCache(), ("t", 0), bytes(15) + b"\x09"
    cache.learn(metadata_answer(other, 7, 8))
    cache.learn(metadata_answer(TOPIC_ID, 1, 5))
    cache.learn(metadata_answer(other, 6, 2))
    assert cache.leaders[key] == Leader(7, 8)
    cache.learn(metadata_answer(TOPIC_ID, 2, 4))
    assert (cache.topic_ids["t"], cache.leaders[key]) == (TOPIC_ID, Leader(1, 5))
    cache.forget("t")
    assert key not in cache.leaders and "t" not in cache.topic_ids
    cache.learn(metadata_answer(TOPIC_ID, 2, 4))
    assert cache.leaders[key] == Leader(1, 5)
    cache.forget("t")
    cache.learn(metadata_answer(bytes(15) + b"\x0a", 3, 0))
    assert cache.leaders[key] == Leader(3, 0)


def test_cache_without_epochs_or_ids() -> None:
    cache = LeaderCache()
    cache.learn(metadata_answer(ZERO_UUID, 1, -1))
    cache.learn(metadata_answer(ZERO_UUID, 2, -1))
    assert cache.leaders["t", 0] == Leader(2, -1)
    assert cache.topic_ids == {}
