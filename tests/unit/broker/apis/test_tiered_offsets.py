"""ListOffsets of a topic whose beginning is only in the tier."""

from __future__ import annotations

import asyncio
import random
import sys
from dataclasses import replace
from typing import Any

import pytest

from broker.apis.list_offsets import Special, pending_upload
from protocol.batch.records import Record, build_batch
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest
from storage.objects import FaultyObjects, Weather
from testkit.memory.broker import NODE, OTHER, Harness, batch, settle
from testkit.memory.tier import HeldStore, TierRoom, tiered

T0 = 1_700_000_000_000
IN_TIER = (T0 + 10, T0 + 40, T0 + 20, T0 + 30, T0 + 40, T0 + 5)
ON_DISK = (T0 + 50, T0 + 35)


async def room(partitions: int = 1, **topic: Any) -> TierRoom:
    """Return records with these times: two segments of three in the tier, two records on the
    disk."""
    made = TierRoom(partitions, topic=topic, remote_storage_enable="true")
    for index in range(partitions):
        for at, timestamp in enumerate(IN_TIER):
            made.h.produce(batch(b"v", timestamp=timestamp), index=index)
            if at % 3 == 2:
                await tiered(made.tier, made.log_of(index))
        for timestamp in ON_DISK:
            made.h.produce(batch(b"v", timestamp=timestamp), index=index)
    return made


def ask(h: Harness, timestamp: int, partitions: int = 1, version: int = 11, **fields: Any) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic(
        name="t",
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            for index in range(partitions)
        ],
    )
    return h.call(ListOffsetsRequest(topics=[topic], **fields), version)


async def results(reply: Any) -> list[tuple[int, int, int, int]]:
    """Return (error, timestamp, offset, epoch) of each partition."""
    if isinstance(reply, asyncio.Future):
        reply = await asyncio.wait_for(reply, 10)
    return [
        (one.error_code, one.timestamp, one.offset, one.leader_epoch)
        for one in reply.topics[0].partitions
    ]


async def offset(h: Harness, timestamp: int, **fields: Any) -> int:
    ((code, _, found, _),) = await results(ask(h, timestamp, **fields))
    assert code == 0
    return found


async def test_a_time_is_looked_for_in_the_tier_first_and_then_on_the_disk() -> None:
    r = await room()
    times = IN_TIER + ON_DISK
    for timestamp in (0, *range(T0, T0 + 52), 2**63 - 1):
        expected = next((at for at, time in enumerate(times) if time >= timestamp), -1)
        assert await offset(r.h, timestamp) == expected, timestamp - T0
    assert await results(ask(r.h, T0 + 15)) == [(0, T0 + 40, 1, 0)]


@pytest.mark.parametrize("special", [None, Special.MAX_TIMESTAMP])
async def test_tiered_record_above_the_limit_is_refused(special: Special | None) -> None:
    """Kafka 4.4: lookups in the tier observe `max.decompressed.message.bytes`, too."""
    made = TierRoom(remote_storage_enable="true")
    records = [Record(0, T0, b"k", b"v"), Record(1, T0 + 60, b"k", bytes(5_000))]
    made.h.produce(build_batch(records, compression=Codec.GZIP))
    await tiered(made.tier, made.log_of(0))
    made.h.produce(batch(b"v", timestamp=T0 + 50))
    time_ms = T0 + 1 if special is None else special
    assert await offset(made.h, time_ms) == 1
    made.log.configure(replace(made.log.config, max_decompressed_message_bytes=4_000))
    assert await offset(made.h, T0) == 0
    assert await results(ask(made.h, time_ms)) == [(ErrorCode.INVALID_RECORD, -1, -1, -1)]


async def test_the_log_start_counts() -> None:
    r = await room()
    r.log.advance_log_start(2)
    assert [await offset(r.h, time) for time in (0, T0 + 35, T0 + 45)] == [2, 4, 6]


async def test_the_highest_time_may_be_on_either_side() -> None:
    r = await room()
    assert await results(ask(r.h, Special.MAX_TIMESTAMP)) == [(0, T0 + 50, 6, 0)]
    await tiered(r.tier, r.log)
    assert await results(ask(r.h, Special.MAX_TIMESTAMP)) == [(0, T0 + 50, 6, 0)]
    r.h.produce(batch(b"v", timestamp=T0 + 50))
    assert await offset(r.h, Special.MAX_TIMESTAMP) == 6, "the first of them"
    r.h.produce(batch(b"v", timestamp=T0 + 51))
    assert await offset(r.h, Special.MAX_TIMESTAMP) == 9


async def test_the_edges_of_both_parts() -> None:
    r = await room()
    r.log.advance_log_start(1)
    edges = {special: await results(ask(r.h, special)) for special in Special if special != -3}
    assert {special: (found[0][2], found[0][3]) for special, found in edges.items()} == {
        Special.LATEST: (8, 0),
        Special.EARLIEST: (1, 0),
        Special.EARLIEST_LOCAL: (6, 0),
        Special.LATEST_TIERED: (5, 0),
        Special.EARLIEST_PENDING_UPLOAD: (6, 0),
    }
    r.tier.caches.clear()
    for special in (Special.LATEST_TIERED, Special.EARLIEST_PENDING_UPLOAD):
        assert await results(ask(r.h, special)) == [(0, -1, -1, -1)]


async def test_list_offsets_without_tiered_data_returns_minus_one() -> None:
    plain = TierRoom()
    plain.produce(b"a")
    for special in (Special.LATEST_TIERED, Special.EARLIEST_PENDING_UPLOAD):
        assert await results(ask(plain.h, special)) == [(0, -1, -1, -1)]
    fresh = TierRoom(remote_storage_enable="true")
    fresh.produce(b"a")
    assert await results(ask(fresh.h, Special.LATEST_TIERED)) == [(0, -1, -1, -1)]
    assert await results(ask(fresh.h, Special.EARLIEST_PENDING_UPLOAD)) == [(0, -1, 0, 0)]


async def test_the_offset_that_waits_to_be_uploaded() -> None:
    """KIP-1023: the earliest pending upload offset is that of Kafka 4.3.1."""
    log = (await room()).log
    assert [pending_upload(end, log) for end in (-1, 0, 5)] == [-1, 1, 6]
    log.advance_log_start(4)
    assert [pending_upload(end, log) for end in (-1, 0, 5)] == [-1, 4, 6]
    log.advance_log_start(6)
    assert pending_upload(-1, log) == 6


async def test_list_offsets_supports_pending_upload_from_version_11() -> None:
    r = await room()
    ((code, *_),) = await results(ask(r.h, Special.EARLIEST_PENDING_UPLOAD, version=10))
    assert code == ErrorCode.UNSUPPORTED_VERSION


async def test_list_offsets_with_failed_store_is_retriable() -> None:
    r = await room(2)
    r.tier.store.objects = FaultyObjects(r.tier.bucket, random.Random(1), Weather(down=True))
    found = await results(ask(r.h, T0 + 30, 2))
    assert [code for code, *_ in found] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    r.tier.store.objects = r.tier.bucket
    r.tier.caches.popitem()
    assert [code for code, *_ in await results(ask(r.h, T0 + 30, 2))] == [
        0,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]


@pytest.mark.parametrize("version", [9, 10, 11])
async def test_list_offsets_timeout_affects_late_partition_only(version: int) -> None:
    """The timeout is the request's since version 10, if it has one, else the broker's."""
    r = await room(2)
    r.tier.caches.pop(next(iter(r.tier.caches)))
    r.held.holding = True
    by_request = version > 9
    r.settings = replace(r.settings, list_offsets_timeout_ms=10**9 if by_request else 20)
    timeout_ms = 20 if by_request else 10**9
    found = await results(ask(r.h, T0 + 30, 2, version, timeout_ms=timeout_ms))
    assert [code for code, *_ in found] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
    await settle()
    assert len(r.h.supervisor) == 0


async def test_all_partitions_are_looked_into_at_once_up_to_a_limit() -> None:
    r = await room(7)
    r.held.holding = True
    waiting = ask(r.h, T0 + 30, 7)
    await settle()
    await settle()
    assert len(r.held.waiting) == 2
    while r.held.waiting:
        await r.held.let_go(2)
        await settle()
    found = await results(waiting)
    assert [code for code, *_ in found] == [0] * 5 + [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert len(r.h.supervisor) == 0


async def test_the_limit_of_look_ups_follows_the_newest_settings() -> None:
    """`remote.log.reader.threads` can change at runtime."""
    r = await room(4)
    r.held.holding = True
    waiting = ask(r.h, T0 + 30, 4)
    await settle()
    assert len(r.held.waiting) == 2
    r.settings = replace(r.settings, at_once=3)
    r.reader.reconfigured()
    await settle()
    assert len(r.held.waiting) == 3
    while r.held.waiting:
        await r.held.let_go(3)
        await settle()
    assert [code for code, *_ in await results(waiting)] == [0] * 4


async def test_list_offsets_after_change_of_leader_is_refused() -> None:
    r = await room(replicas=[NODE, OTHER], isr=[NODE])
    r.held.holding = True
    waiting = ask(r.h, T0 + 30)
    await settle()
    r.h.change(leader=OTHER)
    r.h.change(leader=NODE)
    await r.held.let_go()
    ((code, *_),) = await results(waiting)
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_list_offsets_finds_record_tiered_during_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lookup searches the tier before the copy, and the disk after the local deletion."""
    r = await room()
    lookups = r.h.context.time_lookups
    find = lookups.find

    async def slow(log: Any, timestamp_ms: int | None) -> Any:
        if log.local_log_start_offset == 6:
            await tiered(r.tier, log)
        return await find(log, timestamp_ms)

    monkeypatch.setattr(lookups, "find", slow)
    assert await offset(r.h, T0 + 45) == 6


async def test_list_offsets_continues_after_segment_expires_during_search() -> None:
    """S8: later copies still have the record, and no disk has it."""
    r = await room()
    await tiered(r.tier, r.log)
    r.h.produce(batch(b"v", timestamp=T0 + 60))
    r.log.advance_log_start(2)
    r.tier.store.objects = held = HeldStore(r.tier.bucket)
    held.holding = True
    asked = asyncio.ensure_future(offset(r.h, T0 + 30))
    for _ in range(9):
        await settle()
    assert held.waiting
    held.holding = False
    r.log.advance_log_start(6)
    (cache,) = r.tier.caches.values()
    await r.tier.delete(list(cache.segments())[1])
    await held.let_go()
    assert await asked == 6


async def test_a_search_leaves_nothing_to_be_closed_when_it_is_over() -> None:
    """asyncio would close a remaining generator in a task without a supervisor."""
    r = await room()
    left: list[Any] = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=left.append, finalizer=left.append)
    try:
        assert await offset(r.h, T0) == 0
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert left == []
