"""Appending, reading, rolling, retention, timestamps, truncation."""

from __future__ import annotations

import asyncio
import errno

import pytest

from protocol.batch.header import iter_batches, parse_header
from protocol.batch.records import Producer, Record, build_batch, read_records
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode
from protocol.ids import TopicId
from runtime.clock import ManualClock
from runtime.errors import InvariantViolated
from storage.files import LossyFiles, MemoryFiles
from storage.log.epoch_file import NO_LIMIT
from storage.log.errors import BelowLocalStart, CorruptLog, LogFailed, OffsetOutOfRange
from storage.log.log import LogHooks
from storage.log.producers import Origin
from testkit.memory.logs import (
    T0,
    append,
    batch,
    contents,
    facts,
    fill,
    make_log,
    newest_record,
    record_from,
)


def test_offsets_are_dense_and_the_epoch_is_written():
    log = make_log()
    assert append(log, batch(3), 4)[:2] == (0, 2)
    assert append(log, batch(2), 4)[:2] == (3, 4)
    assert append(log, batch(1), 7)[:2] == (5, 5)
    headers = [header for header, _ in iter_batches(log.read(0, 9999, max_offset=6))]
    assert [(h.base_offset, h.leader_epoch) for h in headers] == [(0, 4), (3, 4), (5, 7)]
    assert log.epochs.entries == [(4, 0), (7, 5)]
    assert log.log_end_offset == 6


def test_a_writable_buffer_is_patched_and_written_like_a_read_only_one():
    one, other = make_log(), make_log()
    data = batch(2) + batch(3)
    append(one, data, 1)
    other.append_as_leader(memoryview(bytearray(data)), 1, T0)
    whole = one.read(0, 9999, max_offset=5)
    assert whole == other.read(0, 9999, max_offset=5)
    assert all(parse_header(whole, pos).leader_epoch == 1 for _, pos in iter_batches(whole))
    assert data == batch(2) + batch(3)


def test_a_lower_epoch_is_our_own_mistake():
    log = make_log()
    append(log, batch(), 3)
    with pytest.raises(InvariantViolated):
        append(log, batch(), 2)


def test_an_append_larger_than_a_segment_is_refused():
    log = make_log(segment_bytes=200)
    with pytest.raises(ApiError) as refused:
        append(log, batch(size=300))
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_reading_returns_the_batch_that_holds_the_offset():
    log = make_log()
    append(log, batch(5))
    append(log, batch(5))
    assert [h.base_offset for h, _ in iter_batches(log.read(7, 9999, max_offset=10))] == [5]
    assert [h.base_offset for h, _ in iter_batches(log.read(4, 9999, max_offset=10))] == [0, 5]


@pytest.mark.parametrize("remembered", [True, False])
def test_nothing_that_reaches_max_offset_is_read(remembered):
    files = MemoryFiles()
    log = make_log(files)
    fill(log, 10, count=3)
    if not remembered:
        log.close()
        log = make_log(files, clean=True)
    for max_offset in range(31):
        data = log.read(0, 1 << 20, max_offset=max_offset)
        ends = [header.next_offset for header, _ in iter_batches(data)]
        assert ends == [end for end in range(3, 31, 3) if end <= max_offset]


def test_max_bytes_cuts_and_the_first_batch_is_whole():
    log = make_log()
    fill(log, 4, size=100)
    size = len(batch(size=100, tag="0-"))
    assert len(log.read(0, size + 10, max_offset=4)) == size + 10
    assert len(log.read(0, 10, max_offset=4)) == size
    assert len(log.read(0, 70, max_offset=4)) == size
    assert len(log.read(0, 0, max_offset=4)) == size
    assert log.read(0, 10, max_offset=4, min_one_batch=False) == b""
    assert log.read(0, 10, max_offset=0) == b""
    assert log.read(4, 10, max_offset=9) == b""


def test_reads_outside_the_log_are_refused():
    log = make_log()
    fill(log, 3)
    for offset in (-1, 4, 2**62):
        with pytest.raises(OffsetOutOfRange) as refused:
            log.read(offset, 100, max_offset=3)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_below_the_local_start_is_another_answer():
    log = make_log(segment_bytes=200, remote_storage_enable=True, local_retention_bytes=0)
    fill(log, 10, size=50)
    log.update_high_watermark(10)
    log.bounds.copied_to = 10
    log.advance_log_start(1)
    log.trimming.saved(1)
    assert log.retention(T0) > 0
    assert log.local_log_start_offset > 1
    with pytest.raises(BelowLocalStart):
        log.read(1, 100, max_offset=10)
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100, max_offset=10)


def test_rolls_by_size_and_reads_across_segments():
    log = make_log(segment_bytes=400)
    fill(log, 20, size=50)
    assert len(log.segments) > 4
    assert all(segment.size_bytes <= 400 for segment in log.segments)
    assert [offset for offset, _ in contents(log)] == list(range(20))
    assert [s.base_offset for s in log.segments][1:] == log.snapshots.offsets


def test_rolls_by_the_records_time():
    log = make_log(segment_ms=1000)
    append(log, batch(timestamp=T0))
    append(log, batch(timestamp=T0 + 1000))
    assert len(log.segments) == 1
    append(log, batch(timestamp=T0 + 1001))
    assert len(log.segments) == 2


def test_rolls_by_the_clock_for_records_without_time():
    clock = ManualClock(T0)
    log = make_log(clock=clock, segment_ms=1000)
    log.append_as_leader(batch(timestamp=-1), 0, clock.now_ms())
    clock.advance(1000)
    log.append_as_leader(batch(timestamp=-1), 0, clock.now_ms())
    assert len(log.segments) == 1
    clock.advance(1)
    log.append_as_leader(batch(timestamp=-1), 0, clock.now_ms())
    assert len(log.segments) == 2


def test_jitter_makes_segments_roll_earlier():
    drawn = []

    def jitter(limit_ms):
        drawn.append(limit_ms)
        return 400

    log = make_log(hooks=LogHooks(roll_jitter_ms=jitter), segment_ms=1000, segment_jitter_ms=500)
    append(log, batch(timestamp=T0))
    append(log, batch(timestamp=T0 + 601))
    assert len(log.segments) == 2
    assert drawn == [500, 500]


@pytest.mark.parametrize(("offset", "base"), [(2**31, 1), (2**31 + 1, 2**31 + 1)])
def test_rolls_when_offsets_do_not_fit_the_index(offset, base):
    """In a log without records before it, the next segment still begins at the log end if
    possible."""
    log = make_log()
    append(log, batch())
    far = batch(base_offset=offset, epoch=0)
    log.append_as_follower(far)
    assert [segment.base_offset for segment in log.segments] == [0, base]
    assert log.read(5, 999, max_offset=2**62) == far


def test_rolls_when_an_index_is_full():
    log = make_log(segment_index_bytes=8 * 4, index_interval_bytes=0)
    for at in range(30):
        append(log, batch(timestamp=T0 + at))
    assert len(log.segments) > 3
    assert [offset for offset, _ in contents(log)] == list(range(30))


def test_closed_segments_are_announced_once():
    closed = []
    hooks = LogHooks(rolled=lambda log: closed.append(log.segments[-2].base_offset))
    log = make_log(hooks=hooks, segment_bytes=200)
    fill(log, 6, size=50)
    assert closed == [segment.base_offset for segment in log.segments][:-1]


def test_the_high_watermark_stays_inside_the_log():
    log = make_log()
    fill(log, 5)
    assert log.update_high_watermark(99) == 5
    assert log.update_high_watermark(3) == 3
    log.advance_log_start(2)
    assert log.update_high_watermark(0) == 2
    assert log.last_stable_offset == 2


def test_open_transactions_hold_the_last_stable_offset():
    log = make_log()
    append(log, batch())
    append(log, batch(2, producer=Producer(9, 0, 0, transactional=True)))
    append(log, batch())
    log.update_high_watermark(4)
    assert log.last_stable_offset == 1


def test_last_stable_offset_after_delete_records_is_at_least_the_log_start():
    """T5: Kafka returns the log start if an open transaction begins below it."""
    log = make_log()
    append(log, batch(2, producer=Producer(9, 0, 0, transactional=True)))
    append(log, batch(3))
    log.update_high_watermark(4)
    log.advance_log_start(1)
    assert log.last_stable_offset == 1
    log.advance_log_start(4)
    assert log.last_stable_offset == 4
    log.update_high_watermark(5)
    assert log.last_stable_offset == 4


# Followers -----------------------------------------------------------------------------------


def test_a_follower_keeps_offsets_and_epochs_and_drops_a_cut_batch():
    leader, follower = make_log(), make_log()
    fill(leader, 3, epoch=1)
    fill(leader, 3, epoch=2)
    data = leader.read(0, 1 << 20, max_offset=6)
    info = follower.append_as_follower(memoryview(data)[:-5])
    assert info is not None and (info.first_offset, info.last_offset) == (0, 4)
    rest = leader.read(5, 1 << 20, max_offset=6)
    follower.append_as_follower(rest)
    assert facts(follower) == facts(leader)
    assert follower.append_as_follower(b"") is None
    assert follower.append_as_follower(rest[:40]) is None


def test_a_follower_splits_what_does_not_fit_its_segments():
    leader, follower = make_log(), make_log(segment_bytes=300)
    fill(leader, 10, size=50)
    follower.append_as_follower(leader.read(0, 1 << 20, max_offset=10))
    assert len(follower.segments) > 2
    assert contents(follower) == contents(leader)


def test_a_follower_does_not_take_batches_of_a_later_leader():
    log = make_log()
    data = batch(base_offset=0, epoch=1) + batch(base_offset=1, epoch=2)
    info = log.append_as_follower(data, max_epoch=1)
    assert info is not None and info.last_offset == 0


@pytest.mark.parametrize(
    "data",
    [
        batch(base_offset=4, epoch=5),
        batch(base_offset=5, epoch=4),
        batch(base_offset=5, epoch=5)[:-1] + b"?",
    ],
)
def test_a_follower_refuses_what_does_not_continue_its_log(data):
    log = make_log()
    append(log, batch(5), 5)
    with pytest.raises(CorruptLog):
        log.append_as_follower(data)
    assert log.log_end_offset == 5


# Failures ------------------------------------------------------------------------------------


class Failing:
    """Files on which the n-th operation of a kind fails."""

    def __init__(self):
        self.kind = ""

    def __call__(self, kind, path):
        if kind == self.kind:
            raise OSError(errno.ENOSPC, "no space left")


def test_after_a_failed_write_nothing_is_appended_any_more():
    failing = Failing()
    told = []
    log = make_log(
        LossyFiles(MemoryFiles(), on_op=failing),
        hooks=LogHooks(failed=lambda log, error: told.append(error)),
    )
    producer = Producer(7, 0, 0)
    append(log, batch(producer=producer))
    before = facts(log)
    failing.kind = "append"
    with pytest.raises(LogFailed) as refused:
        append(log, batch(producer=Producer(7, 0, 1)), 3)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    failing.kind = ""
    with pytest.raises(LogFailed):
        append(log, batch(producer=Producer(7, 0, 1)))
    with pytest.raises(LogFailed):
        log.append_as_follower(batch(base_offset=1, epoch=0))
    assert facts(log) == before
    assert len(told) == 1


async def test_a_failed_flush_is_not_retried():
    failing = Failing()
    log = make_log(LossyFiles(MemoryFiles(), on_op=failing))
    append(log, batch())
    failing.kind = "fsync"
    with pytest.raises(LogFailed):
        await log.flush()
    failing.kind = ""
    assert log.recovery_point == 0
    with pytest.raises(LogFailed):
        await log.flush()
    with pytest.raises(LogFailed):
        append(log, batch())


def test_epochs_that_cannot_be_written_close_the_log():
    failing = Failing()
    told = []
    log = make_log(
        LossyFiles(MemoryFiles(), on_op=failing),
        hooks=LogHooks(failed=lambda log, error: told.append(error)),
    )
    append(log, batch())
    failing.kind = "create"
    with pytest.raises(LogFailed) as refused:
        log.history.write()
    assert told == [refused.value.__cause__] == [log.failure]
    failing.kind = ""
    with pytest.raises(LogFailed):
        append(log, batch())


def test_a_failed_roll_closes_the_log():
    failing = Failing()
    log = make_log(LossyFiles(MemoryFiles(), on_op=failing), segment_bytes=200)
    append(log, batch(size=100))
    failing.kind = "create"
    with pytest.raises(LogFailed):
        append(log, batch(size=100))
    assert contents(log) == [(0, b"0".ljust(100))]


def test_a_failed_index_write_is_met_at_the_next_roll():
    failing = Failing()
    log = make_log(
        LossyFiles(
            MemoryFiles(), on_op=lambda kind, path: path.endswith("index") and failing(kind, path)
        ),
        index_interval_bytes=0,
    )
    failing.kind = "append"
    for at in range(700):
        append(log, batch(timestamp=T0 + at))
    assert [offset for offset, _ in contents(log)] == list(range(700))
    with pytest.raises(LogFailed):
        log.close()


def test_unreadable_files_fail_the_reader_not_the_log():
    class Unreadable(MemoryFiles):
        broken = False

        def open(self, path, create=False):
            if self.broken:
                raise OSError(errno.EIO, "broken", path)
            return super().open(path, create)

    files = Unreadable()
    log = make_log(files, segment_bytes=300, retention_ms=0)
    fill(log, 12, size=50)
    log.update_high_watermark(12)
    for segment in log.segments:
        segment.close()
    files.broken = True
    for attempt in (
        lambda: log.read(0, 100, max_offset=12),
        lambda: record_from(log, T0),
        lambda: newest_record(log),
    ):
        with pytest.raises(LogFailed):
            attempt()
    assert log.failure is None
    files.broken = False
    assert len(contents(log)) == 12


def test_bytes_that_make_no_sense_are_not_served():
    files = MemoryFiles()
    log = make_log(files, index_interval_bytes=1 << 20)
    fill(log, 5)
    log.close()
    log = make_log(files, clean=True)
    files.open(f"/data/topic-0/{0:020d}.log").pwrite(b"\xff", 16)
    with pytest.raises(LogFailed):
        log.read(3, 100, max_offset=5)


# Flush ---------------------------------------------------------------------------------------


async def test_flush_moves_the_recovery_point_and_writes_epochs():
    files = MemoryFiles()
    log = make_log(files, segment_bytes=200)
    fill(log, 6, epoch=3, size=50)
    assert log.recovery_point == 0
    assert await log.flush() == 6
    assert log.recovery_point == 6
    assert files.read("/data/topic-0/leader-epoch-checkpoint") == b"0\n1\n3 0\n"


def written(log):
    """Write the epochs without a worker or an event loop."""
    write = log.history.to_write()
    log.files.write_new(write.temporary, write.content)
    log.history.written(write)


def test_an_epoch_limits_the_high_watermark_until_it_is_in_its_file():
    log = make_log()
    append(log, batch(3), 1)
    assert log.epoch_file.limit == 0
    written(log)
    assert log.epoch_file.limit == NO_LIMIT
    log.history.lead(2)
    assert log.epoch_file.limit == 3
    write = log.history.to_write()
    append(log, batch(3), 4)
    log.files.write_new(write.temporary, write.content)
    log.history.written(write)
    assert log.epoch_file.limit == 3, "epoch 4 is not in it"
    written(log)
    assert log.epoch_file.limit == NO_LIMIT
    assert log.history.to_write() is None
    assert log.files.read(f"{log.directory}/leader-epoch-checkpoint") == b"0\n2\n1 0\n4 3\n"


def test_an_older_list_never_follows_a_newer_one():
    log = make_log()
    append(log, batch(3), 1)
    older = log.history.to_write()
    log.files.write_new(older.temporary, older.content)
    append(log, batch(3), 2)
    written(log)
    log.history.written(older)
    assert log.files.read(f"{log.directory}/leader-epoch-checkpoint").startswith(b"0\n2\n")
    assert [name for name in log.files.listdir(log.directory) if name.endswith("tmp")] == []


async def test_a_flush_makes_the_name_of_a_written_list_durable():
    """KAFKA-16541: the file is complete before and after; the recovery point covers durable data
    only."""
    disk = MemoryFiles()
    files = LossyFiles(disk)
    files.mkdirs("/data")
    log = make_log(files)
    append(log, batch(3), 1)
    await log.flush()
    append(log, batch(3), 2)
    written(log)
    path = f"{log.directory}/leader-epoch-checkpoint"
    assert (files.read(path), disk.read(path)) == (b"0\n2\n1 0\n2 3\n", b"0\n1\n1 0\n")
    await log.flush()
    assert disk.read(path) == b"0\n2\n1 0\n2 3\n"


def test_a_namesake_writes_to_a_file_of_its_own():
    """A worker may still be writing for the deleted log."""
    old, new = make_log(), make_log()
    old.assign_topic_id(TopicId(b"a" * 16))
    new.assign_topic_id(TopicId(b"b" * 16))
    for log in (old, new):
        append(log, batch(), 1)
    assert old.history.to_write().temporary != new.history.to_write().temporary


async def test_a_truncation_during_a_flush_wins():
    gate = asyncio.Event()
    log = make_log(LossyFiles(MemoryFiles(), before_flush=gate.wait))
    fill(log, 6)
    flushing = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    log.truncate_to(2)
    fill(log, 1)
    gate.set()
    await flushing
    assert log.recovery_point <= 2


def test_flush_due():
    clock = ManualClock(T0)
    log = make_log(clock=clock, flush_messages=3, flush_ms=1000)
    fill(log, 2)
    assert not log.durability.is_due(log.config, clock.now_ms())
    clock.advance(1000)
    assert log.durability.is_due(log.config, clock.now_ms())
    fill(log, 1)
    assert log.durability.is_due(log.config, T0)


# Timestamps ----------------------------------------------------------------------------------


def test_offset_for_timestamp_walks_into_the_batch():
    log = make_log(segment_bytes=500, index_interval_bytes=100)
    for at in range(20):
        append(log, batch(3, timestamp=T0 + at * 100, step_ms=10))
    expected = [T0 + at * 100 + k * 10 for at in range(20) for k in range(3)]
    for offset, timestamp in enumerate(expected):
        assert record_from(log, timestamp) == (timestamp, offset, 0)
        assert record_from(log, timestamp - 1) == (timestamp, offset, 0)
    assert record_from(log, expected[-1] + 1) is None
    assert record_from(log, 0) == (T0, 0, 0)


def test_offset_for_timestamp_with_times_out_of_order_and_compression():
    log = make_log(segment_bytes=600, index_interval_bytes=50)
    times = [50, 10, 90, 20, 90, 30, 100, 5]
    for at in times:
        record = Record(timestamp=T0 + at, value=b"x" * 60)
        append(log, build_batch([record], compression=Codec.GZIP))
    for wanted in range(0, 105, 5):
        first = next((i for i, at in enumerate(times) if at >= wanted), None)
        found = record_from(log, T0 + wanted)
        assert (found.offset if found else None) == first
    assert newest_record(log) == (T0 + 100, 6, 0)


def test_offset_for_timestamp_begins_at_the_log_start():
    log = make_log()
    fill(log, 5)
    log.update_high_watermark(5)
    log.advance_log_start(3)
    found = record_from(log, 0)
    assert found is not None and found.offset == 3


def test_max_timestamp_is_the_first_record_that_has_it():
    log = make_log(segment_bytes=300)
    assert newest_record(log) is None
    append(log, batch(timestamp=T0 + 5))
    append(log, batch(3, timestamp=T0 + 3, step_ms=2))
    append(log, batch(timestamp=T0 + 7))
    append(log, batch(timestamp=T0))
    assert newest_record(log) == (T0 + 7, 3, 0)


def test_records_without_time_have_no_max_timestamp():
    log = make_log()
    append(log, batch(timestamp=-1))
    assert newest_record(log) is None


# Truncation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", range(13))
def test_truncation_equals_a_log_that_never_had_more(target):
    log, short = make_log(segment_bytes=300), make_log(segment_bytes=300)
    producer = Producer(5, 0, 0)
    for at in range(12):
        epoch = at // 5
        data = batch(size=60, tag=f"{at}", producer=producer._replace(sequence=at))
        append(log, data, epoch)
        if at < target:
            append(short, data, epoch)
    log.update_high_watermark(12)
    assert log.truncate_to(target) is (target < 12)
    expected = facts(short)
    found = facts(log)
    # A roll may have happened just before the truncation, so the log may end with an empty segment.
    segments = found.pop("segments")
    assert segments in (expected.pop("segments"), [*facts(short)["segments"], target])
    assert found == expected
    assert log.high_watermark == target
    append(log, batch(producer=producer._replace(sequence=target)), 9)
    assert log.log_end_offset == target + 1


def test_truncation_into_a_batch_drops_all_of_it():
    log = make_log()
    append(log, batch(5), 1)
    append(log, batch(5), 2)
    log.truncate_to(7)
    assert log.log_end_offset == 5
    assert log.latest_epoch == 1


def test_truncating_nothing_still_forgets_an_epoch_without_batches():
    log = make_log()
    append(log, batch(3), 1)
    log.history.lead(4)
    assert log.latest_epoch == 4
    assert not log.truncate_to(3)
    assert log.latest_epoch == 1


def test_truncation_below_the_first_segment_restarts_the_log_there():
    log = make_log(segment_bytes=200)
    log.truncate_fully_and_start_at(100)
    fill(log, 5, size=50)
    log.truncate_to(40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert append(log, batch())[0] == 40


def test_log_restarted_at_an_offset_has_no_epochs_or_producers():
    files = MemoryFiles()
    log = make_log(files, segment_bytes=200)
    append(log, batch(3, producer=Producer(5, 2, 0)), 4)
    fill(log, 8, size=50, epoch=4)
    log.truncate_fully_and_start_at(6)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (6, 6, 6)
    assert (log.high_watermark, log.recovery_point) == (6, 6)
    assert log.epochs.entries == []
    assert list(log.producers) == []
    assert [segment.base_offset for segment in log.segments] == [6]
    assert append(log, batch(producer=Producer(5, 0, 9)), 1)[0] == 6
    log.close()
    assert facts(make_log(files, clean=True, log_start_offset=6)) == facts(log)


# Log start and retention ---------------------------------------------------------------------


def test_log_start_moves_up_to_the_high_watermark_only():
    log = make_log()
    fill(log, 5, epoch=2)
    log.update_high_watermark(3)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(4)
    assert log.advance_log_start(3)
    assert not log.advance_log_start(2)
    assert (log.log_start_offset, log.local_log_start_offset) == (3, 3)
    assert log.epochs.entries == [(2, 3)]
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 10, max_offset=5)


def test_retention_by_log_start_spares_the_segment_that_holds_it():
    log = make_log(segment_bytes=300)
    fill(log, 10, size=50)
    log.update_high_watermark(10)
    starts = [segment.base_offset for segment in log.segments]
    log.advance_log_start(starts[2] + 1)
    assert log.retention(T0) == 2
    assert [segment.base_offset for segment in log.segments] == starts[2:]
    assert contents(log, starts[2] + 1)[0][0] == starts[2] + 1


def test_retention_by_size():
    log = make_log(segment_bytes=300, retention_bytes=700)
    fill(log, 20, size=50)
    log.update_high_watermark(20)
    before = log.size_bytes
    removed = log.retention(T0)
    assert removed > 0
    assert 700 <= log.size_bytes < before
    assert log.size_bytes - log.segments[0].size_bytes < 700
    assert log.log_start_offset == log.segments.first_base_offset
    assert log.retention(T0) == 0


def test_retention_by_time_takes_the_last_segment_too():
    files = MemoryFiles()
    log = make_log(files, segment_bytes=300, retention_ms=1000)
    fill(log, 10, size=50, epoch=1)
    log.update_high_watermark(10)
    assert log.retention(T0 + 1000) == 0
    assert log.retention(T0 + 1001) > 2
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert contents(log) == []
    assert append(log, batch(), 1)[0] == 10
    names = files.listdir("/data/topic-0")
    assert [n for n in names if n.endswith(".log")] == ["00000000000000000010.log"]
    assert [n for n in names if n.endswith(".snapshot")] == ["00000000000000000010.snapshot"]


@pytest.mark.parametrize("by_retention", [False, True])
@pytest.mark.parametrize("begins_first", [False, True])
def test_an_emptied_log_knows_the_epoch_of_its_last_batch(by_retention, begins_first):
    """KIP-966: an epoch that began without a batch does not count, before or after the last batch
    goes."""
    files = MemoryFiles()
    log = make_log(files, retention_ms=1000)
    append(log, batch(3), 1)
    append(log, batch(2), 3)
    log.update_high_watermark(5)
    if begins_first:
        log.history.lead(7)
    if by_retention:
        assert log.retention(T0 + 1001) == 1
    else:
        log.advance_log_start(5)
    if not begins_first:
        log.history.lead(7)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert (log.latest_epoch, log.history.last_batch_epoch) == (7, 3)
    log.truncate_to(5)  # it follows again: epoch 7 had no batch
    assert (log.latest_epoch, log.history.last_batch_epoch) == (3, 3)
    log.close()
    log = make_log(files, clean=True, log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert log.history.last_batch_epoch == 3
    append(log, batch(), 8)
    assert log.history.last_batch_epoch == 8


def test_the_last_epoch_is_not_known_of_a_log_that_another_has_emptied():
    """Apache Kafka keeps one epoch, which may have begun at the end without a batch."""
    log = make_log()
    log.truncate_fully_and_start_at(5)
    assert log.history.last_batch_epoch == -1
    log.history.lead(7)
    assert (log.latest_epoch, log.history.last_batch_epoch) == (7, -1)


def test_retention_keeps_what_is_not_below_the_high_watermark():
    log = make_log(segment_bytes=200, retention_ms=0)
    fill(log, 10, size=50)
    bound = log.segments[2].base_offset
    log.update_high_watermark(bound)
    assert log.retention(T0 + 10) == 2
    assert log.log_start_offset == bound


def test_a_compacted_topic_has_no_retention_by_time():
    log = make_log(segment_bytes=200, retention_ms=0, retention_bytes=0, cleanup_policy="compact")
    fill(log, 10, size=50)
    log.update_high_watermark(10)
    assert log.retention(T0 + 10) == 0


def test_removed_segments_are_handed_over_renamed():
    files = MemoryFiles()
    handed = []
    hooks = LogHooks(discard=lambda log, paths: handed.extend(paths))
    log = make_log(files, hooks=hooks, segment_bytes=200, retention_ms=0)
    fill(log, 4, size=50)
    log.update_high_watermark(4)
    log.retention(T0 + 10)
    assert handed and all(path.endswith(".deleted") and files.exists(path) for path in handed)


def test_the_topic_id_is_kept_and_defended():
    files = MemoryFiles()
    log = make_log(files)
    log.assign_topic_id(TopicId(b"\x07" * 16))
    log.close()
    again = make_log(files, clean=True)
    assert again.topic_id == b"\x07" * 16


# Idempotence ---------------------------------------------------------------------------------


def test_a_retry_gets_its_first_offsets_and_is_not_written_again():
    log = make_log()
    for at in range(6):
        append(log, batch(2, timestamp=T0 + at, producer=Producer(5, 0, at * 2)))
    for at in range(1, 6):
        info = append(log, batch(2, producer=Producer(5, 0, at * 2)))
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (at * 2, at * 2 + 1)
        assert info.max_timestamp == T0 + at
    with pytest.raises(ApiError) as refused:
        append(log, batch(2, producer=Producer(5, 0, 0)))
    assert refused.value.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert log.log_end_offset == 12


def test_batches_of_the_quorum_are_not_held_to_sequences():
    log = make_log()
    append(log, batch(producer=Producer(5, 0, 9)))
    append(log, batch(producer=Producer(5, 0, 3)), 0, Origin.RAFT_LEADER)
    assert log.log_end_offset == 2


# Cold reads ----------------------------------------------------------------------------------


async def test_cold_reads_are_the_same_bytes():
    log = make_log(segment_bytes=400)
    fill(log, 20, size=50)
    for offset in range(20):
        plain = log.read(offset, 150, max_offset=20)
        assert await log.read_cold(offset, 150, max_offset=20) == plain
    assert log.is_recent(19)
    assert not log.is_recent(0)


@pytest.mark.parametrize("size", [5, 300], ids=["smaller batches", "larger batches"])
def test_a_batch_that_was_found_is_forgotten_when_it_is_cut(size):
    """A segment caches the batch that it found last."""
    log = make_log()
    fill(log, 6, size=50)
    segment = log.segments.active
    found = segment.find(4)
    assert segment.find(4) is found
    log.truncate_to(3)
    assert segment.find(3) is None
    assert segment.find(4) is None
    append(log, batch(tag="new", size=size))
    append(log, batch(tag="new", size=size))
    assert [r.value[:3] for r in read_records(log.read(4, 9999, max_offset=5))] == [b"new"]
    segment.cut_at(found[1] - 1)
    assert segment._found is None


def test_cached_bytes_returns_the_size_only_if_the_read_needs_no_disk(monkeypatch):
    log = make_log(segment_bytes=400)
    fill(log, 20, size=50)
    asked = []

    def is_cached(file, size_bytes, position):
        asked.append((file.path, size_bytes, position))
        return len(asked) == 1

    monkeypatch.setattr(log.files, "is_cached", is_cached)
    data = log.read(3, 150, max_offset=20)
    assert log.reader.cached_bytes(3, 150, 150) == len(data)
    assert asked[0][1] == len(data)
    assert log.reader.cached_bytes(3, 150, 150) is None, "the disk would be waited for"
    assert log.reader.cached_bytes(3, 150, 149) is None, "more than may be"
    assert log.reader.cached_bytes(20, 150, 0) == 0
    assert len(asked) == 2

    def broken(file, size_bytes, position):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(log.files, "is_cached", broken)
    with pytest.raises(LogFailed):
        log.reader.cached_bytes(3, 150, 150)


async def test_a_cold_read_notices_a_truncation():
    class Slow(MemoryFiles):
        hook = None

        async def pread(self, file, size_bytes, position):
            data = file.pread(size_bytes, position)
            if self.hook is not None:
                hook, self.hook = self.hook, None
                hook()
            return data

    files = Slow()
    log = make_log(files)
    fill(log, 6)

    def cut():
        log.truncate_to(2)
        append(log, batch(tag="new"))

    files.hook = cut
    result = await log.read_cold(0, 9999, max_offset=6)
    assert [r.value[:3] for r in read_records(result)] == [b"0-0", b"1-0", b"new"]
