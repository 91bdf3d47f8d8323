"""Fetches of data that only the tier has (KIP-405): waiting and results."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from broker.replication.reading.replica_selector import RACK_AWARE
from broker.tiering import read_memory
from broker.tiering.read_memory import KEPT_MS
from broker.tiering.settings import QuotaSettings
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from storage.log.log import Log
from storage.objects import FaultyObjects, Weather
from testkit.memory.broker import NODE, OTHER, Peer, fetch_request, settle, topic_id
from testkit.memory.tier import READS, TierRoom, tiered
from tests.unit.broker.fetch.fetched import values
from tests.unit.broker.tiering.transactions import end, transact


def datas(response: Any) -> list[Any]:
    return [one for topic in response.responses for one in topic.partitions]


def ask(room: TierRoom, *offsets: int, partition_max_bytes: int = 1 << 20, **fields: Any) -> Any:
    """Fetch the first partitions from these offsets on."""
    request = fetch_request(0, **fields)
    request.topics[0].partitions = [
        FetchRequest.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for index, offset in enumerate(offsets)
    ]
    return room.h.call(request, 12)


async def answer(waiting: Any) -> list[Any]:
    for _ in range(20):
        await settle()
    return datas(waiting.result())


def expire(room: TierRoom, ms: int) -> None:
    room.h.clock.advance(ms)
    room.h.waits.purgatory.expire(room.h.clock.monotonic_ms())


def idle(room: TierRoom) -> bool:
    return not len(room.h.waits.purgatory) and not room.reader.running and not room.reader.pending


async def slow(*segments: tuple[bytes, ...]) -> TierRoom:
    """Hold the tier's answers until the test releases them."""
    room = TierRoom()
    await room.fill(*segments)
    room.held.holding = True
    return room


async def read_all(room: TierRoom, **fields: Any) -> list[bytes | None]:
    """Read a partition as a consumer does that begins at the start."""
    found: list[bytes | None] = []
    offset = 0
    while offset < room.log.high_watermark:
        reply = ask(room, offset, **fields)
        (data,) = datas(reply) if hasattr(reply, "responses") else await answer(reply)
        assert data.error_code == 0
        more = values(data)
        assert more
        found += more
        offset += len(more)
    return found


# --- what comes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [1 << 20, 200, 1, 0])
async def test_a_consumer_reads_on_from_the_tier_to_the_disk(max_bytes: int) -> None:
    """Each fetch returns at least one batch, whatever the limits."""
    room = TierRoom()
    expected = [b"%d" % at * 20 for at in range(20)]
    await room.fill(tuple(expected[:5]), tuple(expected[5:12]))
    room.produce(*expected[12:])
    assert room.log.local_log_start_offset == 12
    assert await read_all(room, partition_max_bytes=max_bytes) == expected
    assert await read_all(room, max_bytes=max_bytes) == expected


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_cold_fetch_of_segment_tiered_during_read_is_not_out_of_range(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """S1: OFFSET_OUT_OF_RANGE would make a consumer reset its offset or end.

    Its next offset was on the disk when its fetch arrived, and is in the tier since.
    """
    monkeypatch.setattr(Log, "is_recent", lambda log, offset: False)
    room = TierRoom()
    await room.fill((b"a", b"b"))
    room.produce(b"c", b"d")
    waiting = ask(room, 2)
    for _ in range(turns):
        await asyncio.sleep(0)
    await tiered(room.tier, room.log)
    (data,) = await answer(waiting)
    assert (data.error_code, data.records or b"") == (0, b"")
    (data,) = await answer(ask(room, 2))
    assert values(data) == [b"c", b"d"]


async def test_facts_are_those_of_the_log() -> None:
    room = TierRoom()
    await room.fill((b"a", b"b"))
    room.produce(b"c")
    room.log.advance_log_start(1)
    (data,) = await answer(ask(room, 1))
    facts = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
    assert facts == (3, 3, 1)
    assert data.aborted_transactions is None
    (data,) = await answer(ask(room, 1, isolation_level=1))
    assert data.aborted_transactions == []


async def test_a_follower_answers_its_consumers_and_a_replica_is_sent_to_its_own_tier() -> None:
    """KIP-392: since version 11; before that only leaders answer."""
    room = TierRoom(topic={"replicas": [NODE, OTHER], "isr": [NODE]})
    await room.fill((b"a", b"b"))
    request = fetch_request(0, topic="")
    request.topics[0].topic_id = topic_id(1)
    request.replica_state = FetchRequest.ReplicaState(replica_id=OTHER, replica_epoch=100 + OTHER)
    (data,) = datas(room.h.call(request, 17))
    assert (data.error_code, data.log_start_offset) == (
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        0,
    )
    assert not room.held.sizes
    room.h.change(leader=OTHER)
    (data,) = await answer(ask(room, 0))
    assert values(data) == [b"a", b"b"]
    (data,) = await answer(room.h.fetch(0, version=10))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(room.held.sizes) == 1


@pytest.mark.parametrize("offset", [-1, -(2**63), 0, 4, 2**63 - 1])
async def test_remote_fetch_outside_log_is_out_of_range(offset: int) -> None:
    room = TierRoom()
    await room.fill((b"a", b"b", b"c"))
    room.log.advance_log_start(1)
    (data,) = datas(ask(room, offset))
    assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_an_answer_with_remote_data_waits_for_nothing_else() -> None:
    room = TierRoom()
    await room.fill((b"a",))
    (data,) = await answer(ask(room, 0, max_wait_ms=2**31 - 1, min_bytes=1 << 30))
    assert values(data) == [b"a"]
    assert idle(room)


async def test_aborted_transactions_come_with_what_was_read() -> None:
    room = TierRoom()
    transact(room.log, 1)
    await tiered(room.tier, room.log)
    (data,) = await answer(ask(room, 0, isolation_level=1))
    assert data.records == b"", "not stable yet"
    end(room.log, 1, abort=True)
    room.h.clock.advance(int(KEPT_MS))
    (data,) = await answer(ask(room, 0, isolation_level=1))
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(1, 0)]
    (data,) = await answer(ask(room, 0))
    assert data.aborted_transactions is None


async def test_fetch_session_receives_remote_data_with_next_fetch() -> None:
    room = await slow((b"a",))
    reply = room.h.fetch(0, session_epoch=0, max_wait_ms=0)
    expire(room, 505)
    await settle()
    first = reply.result()
    assert not datas(first)[0].records
    await room.held.let_go()
    more = FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1, max_bytes=1000)
    (data,) = await answer(room.h.call(more, 12))
    assert values(data) == [b"a"]


async def test_remote_fetch_reads_following_data_ahead() -> None:
    room = TierRoom(partitions=2)
    await room.fill((b"a" * 50,), (b"b" * 50,))
    await answer(ask(room, 0, partition_max_bytes=1))
    await settle()
    assert len(room.held.sizes) == 2
    (data,) = await answer(ask(room, 1, partition_max_bytes=1))
    assert values(data) == [b"b" * 50]
    assert len(room.held.sizes) == 2


# --- waiting --------------------------------------------------------------------------------------


async def test_a_slow_store_is_read_by_the_fetch_after() -> None:
    room = await slow((b"a", b"b"))
    waiting = ask(room, 0, max_wait_ms=10_000)
    await settle()
    expire(room, READS.fetch_wait_ms - 10)
    await settle()
    assert not waiting.done()
    expire(room, 15)
    (data,) = await answer(waiting)
    assert (data.error_code, data.records, data.high_watermark) == (0, b"", 2)
    assert room.reader.running == 1
    again = ask(room, 0)
    await room.held.let_go()
    assert values((await answer(again))[0]) == [b"a", b"b"]
    assert len(room.held.sizes) == 1
    assert idle(room)


async def test_others_get_what_they_have_when_the_store_is_late() -> None:
    room = TierRoom(partitions=3)
    for index in range(2):
        await room.fill((b"r%d" % index,), index=index)
    room.produce(b"here", index=2)
    room.held.holding = True
    waiting = ask(room, 0, 0, 0)
    await settle()
    await room.held.let_go(1)
    assert not waiting.done()
    expire(room, READS.fetch_wait_ms + 5)
    assert [values(one) for one in await answer(waiting)] == [[b"r0"], [], [b"here"]]


async def test_a_disk_may_be_later_than_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    room = TierRoom(partitions=2)
    await room.fill((b"remote",))
    room.produce(b"cold", index=1)
    monkeypatch.setattr(Log, "is_recent", lambda log, offset: False)
    gates: list[Any] = []

    async def pread(file: Any, size_bytes: int, position: int) -> bytes:
        gates.append(room.h.waits.new_future())
        await gates[-1]
        data: bytes = file.pread(size_bytes, position)
        return data

    monkeypatch.setattr(room.h.files, "pread", pread)
    room.held.holding = True
    waiting = ask(room, 0, 0)
    await settle()
    expire(room, READS.fetch_wait_ms + 5)
    await settle()
    assert not waiting.done()
    gates[0].set_result(None)
    await settle()
    assert not waiting.done(), "what is in the tier is welcome as long as the disk is waited for"
    expire(room, 10_000)
    assert [values(one) for one in await answer(waiting)] == [[], [b"cold"]]


async def test_a_closed_connection_drops_what_has_not_begun() -> None:
    room = await slow(tuple(b"%d" % at for at in range(9)))
    peers = [Peer(at + 9) for at in range(4)]
    waiting = [room.h.fetch(at, peer=peer) for at, peer in enumerate(peers)]
    await settle()
    assert (room.reader.running, room.reader.pending) == (2, 2)
    for peer in peers:
        peer.close("gone")
    await settle()
    assert (room.reader.running, room.reader.pending) == (2, 0)
    assert all(one.cancelled() for one in waiting)
    await room.held.let_go(2)
    assert idle(room)


async def test_a_thousand_partitions_in_one_fetch_fail_each_alone() -> None:
    """Two partitions are read and three wait; the others get a retriable error."""
    room = TierRoom(partitions=1000)
    for index in range(1000):
        await room.fill((b"v",), index=index)
    answered = await answer(ask(room, *[0] * 1000, partition_max_bytes=100))
    codes = [one.error_code for one in answered]
    assert codes == [0] * 5 + [ErrorCode.KAFKA_STORAGE_ERROR] * 995
    assert [values(one) for one in answered[:5]] == [[b"v"]] * 5


async def test_the_budget_of_a_fetch_bounds_what_is_read() -> None:
    room = TierRoom(partitions=5)
    for index in range(5):
        await room.fill((b"v" * 100, b"w" * 100), index=index)
    answered = await answer(ask(room, *[0] * 5, max_bytes=500, partition_max_bytes=400))
    assert [len(values(one)) for one in answered] == [2, 0, 0, 0, 0]
    assert sum(len(one.records) for one in answered) <= 500
    assert len(room.held.sizes) <= 3, "two and what is read ahead"


async def test_answers_that_clients_do_not_fetch_hold_up_what_would_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until one of these responses is gone, a fetch waits as if there were no data, without a
    remote read."""
    monkeypatch.setattr(read_memory, "HELD_BYTES_MAX", 1_300)
    room = TierRoom()
    await room.fill((b"a" * 600,), (b"b" * 600,), (b"c" * 600,))
    unsent = [await answer(ask(room, offset)) for offset in (0, 1)]
    assert [values(data) for (data,) in unsent] == [[b"a" * 600], [b"b" * 600]]
    read = len(room.held.sizes)
    waiting = ask(room, 2, max_wait_ms=500)
    await settle()
    assert not waiting.done()
    expire(room, 505)
    (data,) = await answer(waiting)
    assert (data.error_code, data.records, len(room.held.sizes)) == (0, b"", read)
    del unsent[0]
    (data,) = await answer(ask(room, 2))
    assert values(data) == [b"c" * 600]


# --- errors ---------------------------------------------------------------------------------------


async def test_a_store_that_fails_fails_the_partition_alone() -> None:
    room = TierRoom(partitions=2)
    await room.fill((b"r",))
    room.produce(b"here", index=1)
    room.tier.store.objects = FaultyObjects(room.tier.bucket, random.Random(1), Weather(down=True))
    failed, there = await answer(ask(room, 0, 0, max_wait_ms=500))
    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values(there) == [b"here"]
    room.tier.store.objects = room.tier.bucket
    assert values((await answer(ask(room, 0)))[0]) == [b"r"]


async def test_remote_fetch_without_metadata_is_retriable() -> None:
    room = TierRoom()
    await room.fill((b"r",))
    room.tier.caches.clear()
    (data,) = await answer(ask(room, 0))
    assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("what", ["deleted", "fenced", "gone", "cut"])
async def test_remote_data_is_checked_against_current_partition(what: str) -> None:
    room = TierRoom(topic={"replicas": [NODE, OTHER], "isr": [NODE]})
    await room.fill((b"a", b"b"))
    room.produce(b"c")
    room.held.holding = True
    waiting = ask(room, 0)
    request_epoch = room.h.fetch(0, current_leader_epoch=0)
    await settle()
    if what == "deleted":
        room.log.advance_log_start(1)
    elif what == "fenced":
        room.h.change(leader=OTHER)
    elif what == "gone":
        room.h.delete_topic()
    else:
        room.log.truncate_to(1)
    await room.held.let_go()
    (data,) = await answer(waiting)
    (epoch,) = await answer(request_epoch)
    expected = {
        "deleted": ErrorCode.OFFSET_OUT_OF_RANGE,
        "fenced": ErrorCode.NONE,
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "cut": ErrorCode.NONE,
    }[what]
    assert data.error_code == expected
    assert epoch.error_code == (ErrorCode.FENCED_LEADER_EPOCH if what == "fenced" else expected)
    assert bool(data.records) is (what == "fenced")


async def test_a_reader_that_is_sent_to_another_replica_reads_nothing_here() -> None:
    room = TierRoom(
        topic={"replicas": [NODE, OTHER], "isr": [NODE]},
        props={"replica.selector.class": RACK_AWARE},
    )
    await room.fill((b"a",))
    partition = room.h.partition()
    partition.isr = frozenset({NODE, OTHER})
    partition.remote[OTHER].log_end = 1
    partition.remote[OTHER].log_start = 0
    (data,) = await answer(ask(room, 0, rack_id=f"rack{OTHER}"))
    assert (data.preferred_read_replica, data.records) == (OTHER, b"")
    assert not room.held.sizes
    (data,) = await answer(ask(room, 0, rack_id="elsewhere"))
    assert values(data) == [b"a"]


# --- the quota ------------------------------------------------------------------------------------


async def test_a_fetch_over_the_quota_waits_as_if_there_were_nothing() -> None:
    room = TierRoom(partitions=2)
    await room.fill((b"a" * 1000,))
    room.quota = QuotaSettings(bytes_per_second=10, windows=11, window_seconds=1)
    assert values((await answer(ask(room, 0)))[0])
    room.h.clock.advance(1)
    waiting = ask(room, 0, 0, max_wait_ms=500)
    await settle()
    assert not waiting.done()
    room.produce(b"here", index=1)
    held_back, there = await answer(waiting)
    assert (held_back.error_code, held_back.records) == (0, b"")
    assert values(there) == [b"here"]
    assert len(room.held.sizes) == 1
    expire(room, 200_000)
    assert values((await answer(ask(room, 0)))[0])
