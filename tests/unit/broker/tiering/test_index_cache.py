"""Indexes of remote segments on the disk: fetched once, checked, bounded by size and time."""

from __future__ import annotations

import asyncio
import random

import pytest

from broker.tiering.index_cache import FOLDER, OPEN_MAX, IndexCache
from runtime.clock import ManualClock
from runtime.tasks import Supervisor
from storage.files import MemoryFiles
from storage.objects import FaultyObjects, ObjectError, ObjectNotFound, Weather
from storage.tiered.batches import CorruptSegment
from storage.tiered.layout import Kind, object_key
from storage.tiered.states import SegmentState
from storage.tiered.values import RemoteSegment
from testkit.memory.broker import Harness, batch
from testkit.memory.tier import MemoryTier, tiered


class Room:
    """A cache over a tier of some segments with three batches each."""

    def __init__(self, tier: MemoryTier, segments: list[RemoteSegment]) -> None:
        self.tier = tier
        self.segments = segments
        self.files = MemoryFiles()
        self.clock = ManualClock()
        self.max_bytes = 1 << 20
        self.ttl_ms = 1000.0
        self.cache = self.open()

    def open(self) -> IndexCache:
        """Open the cache as a starting process does."""
        cache = IndexCache(
            self.files,
            "/data",
            self.tier.store,
            Supervisor(),
            monotonic_ms=self.clock.monotonic_ms,
            max_bytes=lambda: self.max_bytes,
            ttl_ms=lambda: self.ttl_ms,
        )
        cache.load()
        return cache

    @property
    def names(self) -> list[str]:
        return self.files.listdir(f"/data/{FOLDER}")


async def room(count: int = 3, tier: MemoryTier | None = None) -> Room:
    tier = tier or MemoryTier()
    h = Harness()
    h.create_topic(configs={"index.interval.bytes": "1"})
    for _ in range(count):
        for _ in range(3):
            h.produce(batch(b"v" * 50))
        await tiered(tier, h.partition().log)
    cache = next(iter(tier.caches.values()))
    return Room(tier, list(cache.finished()))


async def test_positions_are_those_of_the_batches() -> None:
    r = await room()
    one = r.segments[1]
    indexes = await r.cache.get(one)
    size = one.size_bytes // 3
    assert [indexes.position(offset) // size for offset in (3, 4, 5)] == [0, 1, 2]
    assert (indexes.position(0), indexes.position(2**62)) == (0, 2 * size)
    assert indexes.aborted() == []
    assert r.cache.fetched == 1
    await r.cache.get(one)
    assert r.cache.fetched == 1


async def test_callers_of_the_same_indexes_wait_for_one_fetch() -> None:
    r = await room()
    await asyncio.gather(*(r.cache.get(r.segments[0]) for _ in range(20)))
    assert r.cache.fetched == 1


async def test_one_who_goes_takes_nothing_from_the_others() -> None:
    r = await room()
    first = asyncio.ensure_future(r.cache.get(r.segments[0]))
    second = asyncio.ensure_future(r.cache.get(r.segments[0]))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).position(0) == 0


async def test_the_next_process_finds_what_is_there_and_checks_it() -> None:
    r = await room()
    for one in r.segments:
        await r.cache.get(one)
    r.cache.close()
    path = f"/data/{FOLDER}/{next(name for name in r.names if name.startswith('3_'))}"
    stem = path.removesuffix(path[path.rindex(".") :])
    broken = bytearray(r.files.read(f"{stem}.index"))
    broken[5] ^= 1
    r.files.write_atomic(f"{stem}.index", bytes(broken))
    later = r.open()
    assert (len(later), later.size_bytes) == (3, r.cache.size_bytes)
    for one in r.segments:
        assert (await later.get(one)).position(one.end_offset) == one.size_bytes // 3 * 2
    assert later.fetched == 1, "the broken one alone"


async def test_incomplete_and_foreign_files_are_removed_at_the_start() -> None:
    r = await room()
    await r.cache.get(r.segments[0])
    manifest = next(name for name in r.names if name.endswith(".manifest"))
    r.files.unlink(f"/data/{FOLDER}/{manifest}")
    r.files.touch(f"/data/{FOLDER}/x_y.manifest")
    r.files.touch(f"/data/{FOLDER}/7.index")
    assert len(r.open()) == 0
    assert r.names == []


async def test_the_least_recently_used_makes_room() -> None:
    r = await room()
    sizes = []
    for one in r.segments[:2]:
        await r.cache.get(one)
        sizes.append(r.cache.size_bytes)
    r.max_bytes = sizes[1]
    await r.cache.get(r.segments[0])
    await r.cache.get(r.segments[2])
    assert len(r.cache) == 2
    await r.cache.get(r.segments[0])
    assert r.cache.fetched == 3
    await r.cache.get(r.segments[1])
    assert r.cache.fetched == 4
    r.max_bytes = 1
    assert (await r.cache.get(r.segments[2])).position(0) == 0, "one is always kept"
    assert len(r.cache) == 1
    assert len({name.split(".")[0] for name in r.names}) == 1


async def test_caller_of_other_indexes_evicts_none_that_are_awaited() -> None:
    """With room for one index, two waiting readers would otherwise evict each other's forever."""
    r = await room()
    r.max_bytes = 1
    found = await asyncio.gather(*(r.cache.get(one) for one in r.segments))
    assert r.cache.fetched == 3
    assert [one.position(0) for one in found] == [0, 0, 0]
    await r.cache.get(r.segments[0])
    r.cache.forget(r.segments[0].segment_id)
    await r.cache.get(r.segments[0])
    assert len(r.cache) == 1, "nobody waits any more"


async def test_unused_indexes_are_removed_after_their_time_to_live() -> None:
    r = await room()
    await r.cache.get(r.segments[0])
    r.clock.advance(600)
    await r.cache.get(r.segments[1])
    r.clock.advance(600)
    await r.cache.get(r.segments[1])
    assert len(r.cache) == 1
    r.ttl_ms = -1
    r.clock.advance(10**9)
    r.cache.expire()
    assert len(r.cache) == 1
    r.cache.forget(r.segments[1].segment_id)
    assert (len(r.cache), r.cache.size_bytes, r.names) == (0, 0, [])


async def test_the_indexes_of_a_segment_whose_removal_has_begun_go() -> None:
    r = await room()
    for one in r.segments:
        await r.cache.get(one)
    r.tier.state(r.segments[1], SegmentState.DELETE_STARTED)
    (cache,) = r.tier.caches.values()
    r.cache.retain(cache)
    assert len(r.cache) == 2
    assert not [name for name in r.names if name.startswith("3_")]


@pytest.mark.parametrize("state", [SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED])
async def test_unfinished_segments_have_none(state: SegmentState) -> None:
    r = await room()
    one = r.segments[0]
    fields = {name: getattr(one, name) for name in one.__dataclass_fields__}
    with pytest.raises(CorruptSegment):
        await r.cache.get(RemoteSegment(**{**fields, "state": state}))
    assert len(r.cache) == 0


@pytest.mark.parametrize("kind", [Kind.MANIFEST, Kind.OFFSET_INDEX, Kind.TIME_INDEX])
async def test_a_store_that_lost_or_changed_an_object_is_an_error_and_leaves_nothing(
    kind: Kind,
) -> None:
    r = await room()
    key = object_key(r.segments[0], kind)
    content = await r.tier.bucket.get(key, 0, (await r.tier.bucket.head(key)).size_bytes)
    r.tier.bucket.replace(key, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptSegment):
        await r.cache.get(r.segments[0])
    await r.tier.bucket.delete([key])
    with pytest.raises(ObjectNotFound):
        await r.cache.get(r.segments[0])
    assert (len(r.cache), r.names) == (0, [])
    r.tier.bucket.replace(key, content)
    assert (await r.cache.get(r.segments[0])).position(0) == 0


async def test_removed_index_files_are_fetched_again() -> None:
    r = await room()
    await r.cache.get(r.segments[0])
    r.cache.close()
    for name in r.names:
        r.files.unlink(f"/data/{FOLDER}/{name}")
    assert (await r.cache.get(r.segments[0])).position(0) == 0
    assert r.cache.fetched == 2


async def test_few_files_are_held_open() -> None:
    r = await room(OPEN_MAX + 10)
    for one in r.segments:
        await r.cache.get(one)
    assert len(r.cache._open) == OPEN_MAX
    assert (await r.cache.get(r.segments[0])).position(0) == 0
    assert r.cache.fetched == len(r.segments)


async def test_a_store_that_is_down_is_an_error_until_it_is_back() -> None:
    tier = MemoryTier()
    store = FaultyObjects(tier.bucket, random.Random(1), Weather(down=True))
    tier.store.objects = store
    r = await room(tier=tier)
    with pytest.raises(ObjectError):
        await r.cache.get(r.segments[0])
    store.weather = Weather()
    assert (await r.cache.get(r.segments[0])).position(0) == 0
