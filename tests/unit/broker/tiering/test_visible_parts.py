"""The order in which the objects of a copy become visible, and in which they vanish.

An observer looks at the store before and after each call of a copy or a deletion:

- `tier rebuild` lists a copy only while all of its objects are there and right;
- `tier verify` reports nothing but work under way;
- a reader that has not read the DELETE_STARTED gets the records, with all aborted transactions, or
  a retriable error: never an index without its log, nor a log without its transaction index.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from protocol.batch.records import read_records
from protocol.errors import ApiError, ErrorCode
from storage.objects import ObjectError, ObjectRetriable
from storage.tiered.batches import CorruptSegment
from storage.tiered.layout import Kind, keys_to_delete, object_key
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import SegmentState
from storage.tiered.survey import rebuild, verify
from storage.tiered.values import RemoteSegment
from storage.tiered.verify import Fault
from testkit.memory.tier import TierRoom, done, memory_reader, partition_of, tiered
from testkit.memory.tier_stops import StoppedObjects, Stops
from tests.unit.broker.tiering.transactions import end, transact

ABORTED = {(1, 0), (2, 1)}
"""Producers and first offsets of the transactions in the first segment."""


class Looks(Stops):
    """Stopping points at each of which an observer looks at the store."""

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._look = look

    async def __call__(self, name: str) -> None:
        self.taken.append(name)
        try:
            await self._look()
        except AssertionError as error:
            raise AssertionError(f"at {self.taken}: {error}") from error


class Room:
    """Three segments in the tier alone: two transactions, and the abort of each in one of its
    own."""

    def __init__(self) -> None:
        self.room = TierRoom()
        self.tier = self.room.tier
        self.bucket = self.tier.bucket
        self.segments: list[RemoteSegment] = []

    async def fill(self) -> Room:
        log = self.room.log
        transact(log, 1)  # 0
        transact(log, 2)  # 1
        self.segments += await tiered(self.tier, log)
        end(log, 1, abort=True)  # 2
        self.segments += await tiered(self.tier, log)
        end(log, 2, abort=True)  # 3
        self.segments += await tiered(self.tier, log)
        return self

    # The observers ---------------------------------------------------------------------------

    async def survey(self, segment: RemoteSegment, state: SegmentState) -> None:
        """Compare `tier verify` and `tier rebuild` while one segment is in `state`."""
        known = [one for one in self.segments if one.segment_id != segment.segment_id]
        known = [replace(one, state=SegmentState.COPY_FINISHED) for one in known]
        under_way = replace(segment, state=state)
        found = await verify(self.bucket, [*known, under_way], contents=True)
        assert {one.fault for one in found} <= {Fault.UNDER_WAY}, found
        listed = await rebuild(self.bucket, broker_id=1, now_ms=0)
        listed_ids = {one.segment_id for one in listed if isinstance(one, RemoteSegment)}
        assert {one.segment_id for one in known} <= listed_ids
        if segment.segment_id in listed_ids:
            finished = replace(segment, state=SegmentState.COPY_FINISHED)
            assert await verify(self.bucket, [*known, finished], contents=True) == []
        assert (object_key(segment, Kind.MANIFEST) in self.bucket.keys) == (
            segment.segment_id in listed_ids
        ), "the manifest is the last object that comes, and the first that goes"

    async def read(self, *, committed: bool, warm: bool) -> bool:
        """Read as another broker; return whether it got the records."""
        reader = memory_reader(self.tier, self.room.h)
        if not warm:
            for one in self.segments:
                reader.indexes.forget(one.segment_id)
        read = reader.read(self.room.log, 0, 1 << 20, committed=committed)
        await done(read)
        reader.close()
        if read.window is None:
            assert read.error is ErrorCode.KAFKA_STORAGE_ERROR
            return False
        cut = read.window.cut(0, 1 << 20)
        assert cut is not None
        assert [one.value for one in read_records(cut.records)][:2] == [b"t1", b"t2"], "S1"
        if committed:
            assert {(one.producer_id, one.first_offset) for one in cut.aborted} == ABORTED, "S7"
        return True

    async def find_time(self) -> None:
        reader = memory_reader(self.tier, self.room.h)
        try:
            found = await reader.find_time(self.room.log, 0)
            assert found is not None and found.offset == 0, "S8"
        except ApiError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        reader.close()


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("victim", [0, 1, 2])
async def test_deletion_shows_a_reader_no_part_of_a_copy_alone(victim: int, warm: bool) -> None:
    """S1, S3, S7: a deletion may end at any call; `warm`: the reader has the indexes on its
    disk."""
    room = await Room().fill()
    segment = room.segments[victim]
    if warm:
        assert await room.read(committed=True, warm=True)
    got: list[bool] = []

    async def look() -> None:
        await room.survey(segment, SegmentState.DELETE_STARTED)
        await room.find_time()
        await room.read(committed=False, warm=warm)
        got.append(await room.read(committed=True, warm=warm))

    looks = Looks(look)
    await SegmentStore(StoppedObjects(room.bucket, looks)).delete(segment)
    assert len(got) >= 4
    assert got[0], "all objects are there before the first call"
    assert got[-1] == (warm and victim > 0), "indexes that the reader has are still right"
    assert not set(keys_to_delete(segment)) & set(room.bucket.keys)


async def test_copy_is_listed_once_its_last_object_is_there() -> None:
    """S3: no part of a copy counts before all of them exist."""
    room = await Room().fill()
    log = room.room.log
    room.room.produce(b"more")
    log.roll()
    begun: list[bool] = []

    async def look() -> None:
        cache = room.tier.caches[partition_of(log).identity]
        (segment,) = [one for one in cache.segments() if one.state is SegmentState.COPY_STARTED]
        await room.survey(segment, SegmentState.COPY_STARTED)
        with pytest.raises(CorruptSegment):
            await room.room.indexes.get(segment)
        begun.append(object_key(segment, Kind.MANIFEST) in room.bucket.keys)

    looks = Looks(look)
    room.tier._direct = SegmentStore(StoppedObjects(room.bucket, looks))
    (copied,) = await room.tier.copy(log)
    kinds = [name.split()[-1] for name in looks.taken if name.startswith("put")]
    assert sorted(kinds[:-1]) == sorted(
        one.value for one in (Kind.LOG, Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.PRODUCER_SNAPSHOT,
                              Kind.LEADER_EPOCHS)
    )  # fmt: skip
    assert kinds[-1] == Kind.MANIFEST.value
    assert begun == sorted(begun) and begun.count(True) == 3, "after its put, and around the check"
    assert {copied.segment_id} <= {
        one.segment_id for one in await rebuild(room.bucket, broker_id=1, now_ms=0)
        if isinstance(one, RemoteSegment)
    }  # fmt: skip


class Broken(StoppedObjects):
    """A store whose n-th call of one kind fails, after it took effect in part."""

    def __init__(self, room: Room, count: int) -> None:
        super().__init__(room.bucket, Stops())
        self.left = count

    async def delete(self, keys: Sequence[str]) -> None:
        self.left -= 1
        if self.left < 0:
            await self.backing.delete(keys[: len(keys) // 2])
            raise ObjectRetriable(keys[-1], "503 SlowDown")
        await self.backing.delete(keys)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("victim", [0, 1, 2])
async def test_deletion_that_failed_in_part_leaves_nothing_that_counts(
    victim: int, count: int
) -> None:
    """S3, S7: a store may delete some of the objects that one request names."""
    room = await Room().fill()
    segment = room.segments[victim]
    with pytest.raises(ObjectError):
        await SegmentStore(Broken(room, count)).delete(segment)
    await room.survey(segment, SegmentState.DELETE_STARTED)
    assert await room.read(committed=True, warm=False) == (count == 0), (
        "the manifest is still there"
    )
    await SegmentStore(room.bucket).delete(segment)
    assert not set(keys_to_delete(segment)) & set(room.bucket.keys)


@pytest.mark.parametrize("kind", [one for one in Kind if one is not Kind.MANIFEST])
async def test_rebuild_leaves_out_a_copy_with_an_object_of_another_size(kind: Kind) -> None:
    """S1, S3: the manifest alone does not make a copy complete."""
    room = await Room().fill()
    damaged = room.segments[1]  # it has a transaction index
    await room.bucket.put(object_key(damaged, kind), b"of another size")
    listed = await rebuild(room.bucket, broker_id=1, now_ms=0)
    found = {one.segment_id for one in listed if isinstance(one, RemoteSegment)}
    assert found == {one.segment_id for one in room.segments} - {damaged.segment_id}
