"""Reads from the tier: results, concurrency, and the end of reads without a waiter."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from broker.tiering.part_reader import INDEX_SLACK_BYTES
from broker.tiering.read_memory import KEPT_BYTES_MAX, KEPT_MS, PART_BYTES_MAX
from broker.tiering.reader import FAILED_MS, RemoteRead
from broker.tiering.settings import QuotaSettings
from broker.tiering.windows import Cut
from protocol.batch.header import iter_batches
from protocol.batch.records import Producer, Record, build_batch, read_records
from protocol.errors import ApiError, ErrorCode
from storage.log.errors import BelowLocalStart
from storage.log.log import Log
from storage.objects import FaultyObjects, Weather
from storage.tiered.cache import SegmentCache
from storage.tiered.layout import Kind, object_key
from storage.tiered.states import SegmentState
from storage.tiered.values import SegmentUpdate
from testkit.memory.broker import batch, settle
from testkit.memory.tier import READS, TierRoom, done, drop_local, partition_of, tiered
from tests.unit.broker.tiering.transactions import end, transact

MIB = 1 << 20


def values(data: Cut) -> list[bytes | None]:
    return [record.value for record in read_records(data.records)]


# --- what a read brings ---------------------------------------------------------------------------


@pytest.mark.parametrize("interval", ["1", "4096"])
async def test_batches_from_the_offset_on_to_the_segments_end(interval: str) -> None:
    room = TierRoom(index_interval_bytes=interval)
    await room.fill((b"a", b"b", b"c"), (b"d", b"e"))
    for offset, expected in enumerate([b"abc", b"bc", b"c", b"de", b"e"]):
        cut = await room.read(offset)
        assert b"".join(value or b"" for value in values(cut)) == expected
        assert cut.last_offset == (2 if offset < 3 else 4)
        window = await room.window(offset)
        assert (window.last_offset, window.last_epoch) == (cut.last_offset, 0)
        assert room.reader.holds(window, room.log, offset)


async def test_the_middle_of_a_batch_is_answered_with_the_whole_batch() -> None:
    room = TierRoom()
    room.h.produce(batch(b"a", b"b", b"c"))
    await room.fill((b"d",))
    for offset in range(3):
        assert values(await room.read(offset, 1)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31), 1, 60, 2**31 - 1])
async def test_at_least_one_batch_and_no_more_than_the_limits(max_bytes: int) -> None:
    room = TierRoom()
    await room.fill((b"a" * 30, b"b" * 30))
    assert len(values(await room.read(0, max_bytes))) == (2 if max_bytes > 1000 else 1)


async def test_a_first_batch_that_is_larger_than_all_limits_is_read_whole() -> None:
    room = TierRoom(
        max_message_bytes=str(2 * PART_BYTES_MAX), segment_bytes=str(8 * PART_BYTES_MAX)
    )
    large = random.Random(1).randbytes(PART_BYTES_MAX + MIB)
    await room.fill((b"before", large, b"after"))
    assert values(await room.read(1, 100)) == [large]
    assert values(await room.read(2, 100)) == [b"after"]


async def test_read_is_limited_to_one_part() -> None:
    room = TierRoom(max_message_bytes=str(2 * MIB), segment_bytes=str(16 * PART_BYTES_MAX))
    await room.fill(tuple(bytes([at]) * MIB for at in range(12)))
    data = await room.read(0, 2**31 - 1)
    assert PART_BYTES_MAX - MIB <= len(data.records) <= PART_BYTES_MAX + INDEX_SLACK_BYTES
    assert max(room.held.sizes) <= PART_BYTES_MAX + MIB + INDEX_SLACK_BYTES


async def test_records_removed_by_an_unclean_election_are_not_read() -> None:
    """S1: the copy reaches beyond the part that it shares with this log's lineage."""
    room = TierRoom()
    room.produce(b"a", b"b", b"lost")
    room.log.roll()
    await room.tier.copy(room.log)
    room.log.truncate_to(2)
    room.log.history.lead(7)
    room.h.partition().leader_epoch = 7
    room.produce(b"c", b"d")
    room.log.bounds.copied_to = 0
    room.log.bounds.local_log_start_offset = 2
    assert values(await room.read(0)) == [b"a", b"b"]
    with pytest.raises(ApiError):
        await room.read(2)


async def gapped() -> TierRoom:
    """Return a topic that was compacted before, with gaps, also at a segment's end."""
    room = TierRoom()
    log = room.log
    log.append_as_follower(build_batch([Record(0, 1, None, b"a")], 3, leader_epoch=0))
    log.roll(10)
    log.append_as_follower(build_batch([Record(0, 1, None, b"b")], 12, leader_epoch=0))
    log.roll(20)
    log.append_as_follower(build_batch([Record(0, 1, None, b"c")], 25, leader_epoch=0))
    log.update_high_watermark(26)
    log.bounds.log_start_offset = 0
    await room.tier.copy(log)
    drop_local(log)
    assert log.local_log_start_offset == 20
    return room


async def test_records_that_cleaning_left_out_are_passed_over() -> None:
    room = await gapped()
    for offset, expected in ((3, b"a"), (4, b"b"), (9, b"b"), (12, b"b"), (13, b"c"), (19, b"c")):
        assert values(await room.read(offset)) == [expected], offset


async def test_local_records_behind_a_gap_end_at_the_last_stable_offset() -> None:
    """S7: the disk has records of an open transaction behind the segment that ends in a gap."""
    room = await gapped()
    producer = Producer(1, 0, 0, transactional=True)
    for offset, value, writer in ((26, b"t", producer), (27, b"d", Producer())):
        one = build_batch([Record(0, 1, None, value)], offset, leader_epoch=0, producer=writer)
        room.log.append_as_follower(one)
    room.log.update_high_watermark(28)
    assert values(await room.read(13, committed=True)) == [b"c"]
    assert values(await room.read(13)) == [b"c", b"t", b"d"]


async def test_records_that_leave_the_disk_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The offset was on the disk a moment ago, so OFFSET_OUT_OF_RANGE would be wrong for a
    consumer."""

    async def left(log: Log, offset: int, max_bytes: int, **_: object) -> bytes:
        raise BelowLocalStart(offset, offset + 1)

    room = await gapped()
    monkeypatch.setattr(Log, "read_cold", left)
    with pytest.raises(ApiError) as refused:
        await room.read(13)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


# --- aborted transactions -------------------------------------------------------------------------


async def test_aborted_transactions_over_all_segments_up_to_the_end_that_was_read() -> None:
    room = TierRoom()
    transact(room.log, 1)  # 0, aborted at 2, in the next segment
    await tiered(room.tier, room.log)
    transact(room.log, 2)  # 1, aborted at 6, on this disk
    end(room.log, 1, abort=True)  # 2
    await tiered(room.tier, room.log)
    transact(room.log, 3)  # 3, committed
    end(room.log, 3, abort=False)  # 4
    transact(room.log, 4)  # 5, aborted at 7
    await tiered(room.tier, room.log)
    end(room.log, 2, abort=True)
    end(room.log, 4, abort=True)

    async def aborted(offset: int) -> list[tuple[int, int]]:
        data = await room.read(offset, 1, committed=True)
        return [(one.producer_id, one.first_offset) for one in data.aborted]

    assert [await aborted(offset) for offset in range(6)] == [
        [(1, 0)],
        [(1, 0), (2, 1)],
        [(1, 0), (2, 1)],
        [(2, 1)],
        [(2, 1)],
        [(2, 1), (4, 5)],
    ]
    assert (await room.read(0)).aborted == (), "nobody asked"


async def test_transactions_that_ended_before_or_began_behind_are_left_out() -> None:
    room = TierRoom()
    for producer_id in (1, 2):
        transact(room.log, producer_id)
        end(room.log, producer_id, abort=True)
    await tiered(room.tier, room.log)
    for offset, producer_id in ((0, 1), (2, 2)):
        data = await room.read(offset, 1, committed=True)
        assert [one.producer_id for one in data.aborted] == [producer_id]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "code", "errors"),
    [
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE, 0),
        (-(2**63), ErrorCode.OFFSET_OUT_OF_RANGE, 0),
        (1, ErrorCode.KAFKA_STORAGE_ERROR, 1),
        (2**63 - 1, ErrorCode.KAFKA_STORAGE_ERROR, 1),
    ],
)
async def test_offset_outside_all_copies_is_refused(
    offset: int, code: ErrorCode, errors: int
) -> None:
    """An offset below the log start is out of range; any other is retriable, and counts."""
    room = TierRoom()
    await room.fill((b"a",))
    with pytest.raises(ApiError) as caught:
        await room.read(offset)
    assert caught.value.code is code
    assert room.reader.counters["t"].errors == errors


async def test_metadata_that_is_not_ready_and_a_copy_that_goes_are_retriable() -> None:
    room = TierRoom()
    await room.fill((b"a",))
    (cache,) = room.tier.caches.values()
    (one,) = cache.finished()
    room.tier.caches.clear()
    with pytest.raises(ApiError) as caught:
        await room.read(0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    room.tier.caches[partition_of(room.log).identity] = cache
    await room.tier.delete(one)
    with pytest.raises(ApiError) as caught:
        await room.read(0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("how", ["down", "flipped", "lost"])
async def test_a_store_that_fails_gives_an_error_and_never_data(how: str) -> None:
    room = TierRoom()
    await room.fill((b"a" * 100,))
    await room.read(0)
    weather = {"down": Weather(down=True), "flipped": Weather(flipped=1.0), "lost": Weather()}[how]
    room.tier.store.objects = FaultyObjects(room.tier.bucket, random.Random(1), weather)
    if how == "lost":
        (cache,) = room.tier.caches.values()
        await room.tier.bucket.delete([object_key(one, Kind.LOG) for one in cache.finished()])
    for _ in range(5):
        with pytest.raises(ApiError) as caught:
            await room.read(0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert room.reader.counters["t"].errors == 5
    assert (room.reader.running, room.reader.pending, room.reader.kept_bytes) == (0, 0, 0)


async def test_unexpected_failure_ends_one_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    room = TierRoom()
    await room.fill((b"a",))

    def oh(*_: object) -> None:
        raise RuntimeError("oh")

    with monkeypatch.context() as patch:
        patch.setattr("broker.tiering.part_reader.window_of", oh)
        with pytest.raises(ApiError):
            await room.read(0)
    assert room.h.supervisor.survived == {"remote read": 1}
    assert values(await room.read(0)) == [b"a"]


# --- how many -------------------------------------------------------------------------------------


async def many(room: TierRoom, count: int) -> list[RemoteRead | ApiError]:
    """Begin reads of the first `count` offsets at once."""
    found: list[RemoteRead | ApiError] = []
    for offset in range(count):
        try:
            found.append(room.reader.read(room.log, offset, 1, committed=False))
        except ApiError as error:
            found.append(error)
    await settle()
    return found


async def test_reads_beyond_both_limits_are_refused() -> None:
    room = TierRoom()
    await room.fill(*((b"%d" % at,) for at in range(1000)))
    room.held.holding = True
    reads = await many(room, 1000)
    refused = [one for one in reads if isinstance(one, ApiError)]
    assert (room.reader.running, room.reader.pending, len(refused)) == (2, 3, 995)
    assert {one.code for one in refused} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert len(room.held.waiting) == 2
    room.settings = replace(READS, at_once=4)
    await room.held.let_go()
    assert (room.reader.running, room.reader.pending) == (4, 0)
    await room.held.let_go(4)
    assert room.reader.running == 0
    found = [one.window.cut(0, 0) for one in reads if isinstance(one, RemoteRead) and one.window]
    assert [values(cut) for cut in found if cut] == [[b"%d" % at] for at in range(5)]


async def test_pending_read_takes_the_result_of_another_read() -> None:
    room = TierRoom()
    await room.fill(tuple(b"%d" % at for at in range(9)), (b"last",))
    room.held.holding = True
    reads = await many(room, 5)
    assert (room.reader.running, room.reader.pending) == (2, 3)
    await room.held.let_go()
    assert (room.reader.running, room.reader.pending) == (1, 0)
    first, _, *waited = reads
    assert isinstance(first, RemoteRead)
    assert first.window is not None
    assert [one.window for one in waited if isinstance(one, RemoteRead)] == [first.window] * 3
    assert len(room.held.sizes) == 2


async def test_abandoned_read_continues_and_is_found_later() -> None:
    room = TierRoom()
    await room.fill((b"a", b"b"))
    room.held.holding = True
    first = room.reader.read(room.log, 0, 1, committed=False)
    assert room.reader.read(room.log, 0, 1, committed=False) is first
    assert room.reader.read(room.log, 0, 1, committed=True) is not first
    await settle()
    await room.held.let_go(2)
    assert first.window is not None
    room.h.clock.advance(int(KEPT_MS) - 1)
    assert room.reader.read(room.log, 0, 1, committed=False).window is first.window
    assert room.reader.read(room.log, 1, 1, committed=False).window is first.window
    room.h.clock.advance(1)
    assert not room.reader.read(room.log, 0, 1, committed=False).done
    assert room.reader.kept_bytes == 0


@pytest.mark.parametrize("late", [False, True])
async def test_error_of_an_abandoned_read_is_returned_once_while_it_is_new(late: bool) -> None:
    """P26: an error is kept only briefly, so a store that recovered is read again (tiered seed
    42)."""
    room = TierRoom()
    await room.fill((b"a",))
    room.tier.store.objects = FaultyObjects(room.tier.bucket, random.Random(1), Weather(down=True))
    first = room.reader.read(room.log, 0, 1, committed=False)
    await settle()
    room.h.clock.advance(int(FAILED_MS) - (not late))
    if late:
        assert room.reader.read(room.log, 0, 1, committed=False) is not first
        return
    assert room.reader.read(room.log, 0, 1, committed=False) is first
    assert first.error is not None
    assert room.reader.read(room.log, 0, 1, committed=False) is not first


async def test_error_of_a_part_read_ahead_is_kept_for_its_fetch() -> None:
    """P26: a second fetch of the part before does not read ahead again, and does not take the
    error."""
    room = TierRoom()
    await room.fill((b"a", b"b"), (b"c",))
    first = room.reader.read(room.log, 0, 1, committed=False)
    await done(first)
    room.tier.store.objects = FaultyObjects(room.tier.bucket, random.Random(1), Weather(down=True))
    for _ in range(2):
        room.reader.taken(first, 1)
        await settle()
    failed = room.reader.read(room.log, 2, 1, committed=False)
    assert failed.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert room.reader.counters["t"].requests == 2


async def test_kept_window_that_is_no_longer_valid_is_removed() -> None:
    """A log that was truncated below the window has other records at these offsets now."""
    room = TierRoom()
    await room.fill((b"a", b"b", b"c"))
    data = await room.window(0)
    await done(room.reader.read(room.log, 0, MIB, committed=False))
    assert room.reader.read(room.log, 0, MIB, committed=False).done
    room.log.advance_log_start(1)
    assert not room.reader.holds(data, room.log, 0)
    assert room.reader.holds(data, room.log, 1)
    assert not room.reader.read(room.log, 0, MIB, committed=False).done
    assert not room.reader.read(room.log, 1, MIB, committed=False).done
    room.log.truncate_to(2)
    assert not room.reader.holds(data, room.log, 1)
    room.log.history.lead(7)
    room.h.partition().leader_epoch = 7
    room.produce(b"d")
    assert room.log.high_watermark == 3
    assert not room.reader.holds(data, room.log, 1), "another epoch wrote the last of it"


async def test_kept_windows_are_bounded_in_size() -> None:
    room = TierRoom(max_message_bytes=str(8 * MIB), segment_bytes=str(1 << 30))
    await room.fill(tuple(bytes([at]) * (7 * MIB) for at in range(12)))
    for offset in range(12):
        await done(room.reader.read(room.log, offset, 1, committed=False))
        assert 0 < room.reader.kept_bytes <= KEPT_BYTES_MAX


async def test_kept_is_what_the_store_answered_unless_little_of_it_is_of_use() -> None:
    """Kept records reference the whole answer, and hold its memory; a small useful part is
    copied."""
    room = TierRoom()
    await room.fill((b"a" * 6_000, b"b" * 1_000, b"c" * 1_000))
    cache = room.tier.cache_of(partition_of(room.log))
    assert cache is not None
    (segment,) = cache.finished()
    last = room.reader.read(room.log, 1, 1, committed=False)
    await done(last)
    assert last.window is not None
    assert room.reader.kept_bytes == len(last.window.records) < segment.size_bytes // 2
    before = room.reader.kept_bytes
    await done(room.reader.read(room.log, 0, 1, committed=False))
    assert room.reader.kept_bytes == before + segment.size_bytes


async def test_kept_windows_expire_without_further_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.tiering.reader.SWEEP_S", 0.0)
    room = TierRoom()
    room.settings = replace(READS, index_cache_ttl_ms=int(KEPT_MS))
    await room.fill((b"a",))
    await done(room.reader.read(room.log, 0, 1, committed=False))
    await settle()
    assert room.reader.kept_bytes > 0
    room.h.clock.advance(int(KEPT_MS))
    for _ in range(10):
        await settle()
    assert (room.reader.kept_bytes, len(room.indexes)) == (0, 0)
    await room.fill((b"b",))
    await done(room.reader.read(room.log, 1, 1, committed=False))
    room.reader.close()
    await done(room.reader.read(room.log, 0, 1, committed=False))
    room.h.clock.advance(int(KEPT_MS))
    for _ in range(10):
        await settle()
    assert room.reader.kept_bytes > 0, "the timer went with the node"


async def test_following_part_is_read_ahead_once_if_no_read_waits() -> None:
    room = TierRoom()
    await room.fill(*((b"%d" % at, b"more") for at in range(4)))
    first = room.reader.read(room.log, 0, 1, committed=False)
    await done(first)
    room.held.holding = True
    room.reader.taken(first, 0)
    room.reader.taken(first, 1)
    await settle()
    assert (room.reader.running, len(room.held.waiting)) == (1, 1)
    await room.held.let_go()
    second = room.reader.read(room.log, 2, 1, committed=False)
    assert second.done
    assert (room.reader.running, len(room.held.sizes)) == (0, 2)
    for offset in (5, 7):
        room.reader.read(room.log, offset, 1, committed=False)  # all places are taken
    room.reader.taken(second, 3)
    assert (room.reader.running, room.reader.pending) == (2, 0)
    await settle()
    await room.held.let_go(2)
    last = room.reader.read(room.log, 7, 1, committed=False)
    room.reader.taken(last, 7)
    assert room.reader.running == 0, "what is behind is on this disk"


async def test_sequential_reader_gets_whole_parts_without_overlap() -> None:
    """The batch that would be cut is left out of a part.

    The index leads to a search within the part, but a consumer that reads on knows where the part
    ended.
    """
    room = TierRoom(max_message_bytes=str(2 * MIB), segment_bytes=str(1 << 30))
    await room.fill(tuple(bytes([at]) * (MIB - 100_000) for at in range(11)))
    cache = room.tier.cache_of(partition_of(room.log))
    assert cache is not None
    (segment,) = cache.finished()
    batch_bytes = segment.size_bytes // 11
    for offset in range(11):
        one = room.reader.read(room.log, offset, MIB, committed=False)
        await done(one)
        assert one.window is not None
        cut = one.window.cut(offset, MIB)
        assert cut is not None
        assert cut.last_offset == offset
    assert room.held.sizes == [
        MIB + INDEX_SLACK_BYTES,
        *[4 * batch_bytes] * 2,
        2 * batch_bytes,
    ]


async def test_window_read_to_its_end_makes_room_for_the_following_part() -> None:
    """A consumer that reads on is read ahead for, however much it has read."""
    room = TierRoom(max_message_bytes=str(8 * MIB), segment_bytes=str(1 << 30))
    await room.fill(tuple(bytes([at]) * (7 * MIB) for at in range(20)))
    for offset in range(19):
        one = room.reader.read(room.log, offset, 1, committed=False)
        await done(one)
        room.reader.taken(one, offset)
        assert (
            room.reader.running == 1
            or room.reader.read(room.log, offset + 1, 1, committed=False).done
        )
        await settle()
        assert room.reader.kept_bytes <= KEPT_BYTES_MAX


async def test_read_ahead_stops_while_much_unread_data_is_kept() -> None:
    room = TierRoom(max_message_bytes=str(8 * MIB), segment_bytes=str(1 << 30))
    await room.fill(tuple(bytes([at]) * (7 * MIB) for at in range(20)))
    ahead = []
    for offset in range(0, 20, 2):
        one = room.reader.read(room.log, offset, 1, committed=False)
        await done(one)
        room.reader.taken(one, offset - 1)
        ahead.append(room.reader.running)
        await settle()
    assert ahead == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert room.reader.kept_bytes <= KEPT_BYTES_MAX


async def test_a_read_that_has_not_begun_goes_with_who_wanted_it() -> None:
    room = TierRoom()
    await room.fill(*((b"%d" % at,) for at in range(4)))
    room.held.holding = True
    reads = [one for one in await many(room, 4) if isinstance(one, RemoteRead)]
    heard: list[RemoteRead] = []
    reads[3].listen(heard.append)
    for one in reads:
        room.reader.give_up(one)
    assert (room.reader.running, room.reader.pending) == (2, 1)
    reads[3].leave(heard.append)
    room.reader.give_up(reads[3])
    room.reader.give_up(reads[3])
    assert (room.reader.running, room.reader.pending) == (2, 0)
    await room.held.let_go(2)
    assert room.reader.read(room.log, 2, 1, committed=False) is not reads[2]


async def test_the_quota_holds_reads_back_until_the_rate_is_down() -> None:
    room = TierRoom()
    await room.fill((b"a" * 1000,), (b"b" * 1000,))
    room.quota = QuotaSettings(bytes_per_second=100, windows=11, window_seconds=1)
    assert room.reader.throttle_ms() == 0.0
    one = room.reader.read(room.log, 0, 1, committed=False)
    await done(one)
    wait_ms = room.reader.throttle_ms()
    assert wait_ms > 0
    room.reader.taken(one, 0)
    assert room.reader.running == 0
    room.h.clock.advance(12_000)
    assert room.reader.throttle_ms() == 0.0


async def test_every_offset_of_a_random_log_is_found() -> None:
    rng = random.Random(5)
    room = TierRoom(index_interval_bytes="300")
    for _ in range(5):
        for _ in range(rng.randrange(1, 30)):
            room.h.produce(batch(*(rng.randbytes(rng.randrange(90)) for _ in range(3))))
        await tiered(room.tier, room.log)
    for offset in range(room.log.log_end_offset):
        data = await room.read(offset, rng.randrange(400))
        first, _ = next(iter_batches(data.records))
        assert first.base_offset == offset - offset % 3


async def test_s8_a_look_up_by_time_goes_on_behind_what_a_leader_before_has_deleted() -> None:
    """S8: this log does not know that leader's log start yet (tiered seed 359)."""
    room = TierRoom()
    await room.fill((b"a",), (b"b",), (b"c",))
    (cache,) = room.tier.caches.values()
    first, second, *_ = sorted(cache.finished(), key=lambda one: one.start_offset)
    found = await room.reader.find_time(room.log, 0)
    assert found is not None
    assert found.offset == 0
    await room.tier.delete(first)
    assert room.log.log_start_offset == 0
    found = await room.reader.find_time(room.log, 0)
    assert found is not None
    assert found.offset == second.start_offset


async def test_s8_a_look_up_by_time_does_not_pass_over_a_copy_that_is_not_known() -> None:
    room = TierRoom()
    await room.fill((b"a",), (b"b",), (b"c",))
    ((identity, cache),) = room.tier.caches.items()
    first, *later = sorted(cache.finished(), key=lambda one: one.start_offset)
    known = room.tier.caches[identity] = SegmentCache(cache.partition)
    for one in later:
        known.apply(known.next_offset, replace(one, state=SegmentState.COPY_STARTED))
        finished = SegmentUpdate(
            partition=one.partition,
            segment_id=one.segment_id,
            broker_id=one.broker_id,
            event_timestamp_ms=0,
            state=SegmentState.COPY_FINISHED,
        )
        known.apply(known.next_offset, finished)
    assert known.find(0, later[0].start_offset) is not None
    assert first.start_offset == 0
    with pytest.raises(ApiError, match="no segment with offset 0"):
        await room.reader.find_time(room.log, 0)
    with pytest.raises(ApiError, match="no segment with offset 0"):
        await room.reader.find_time(room.log, None)
