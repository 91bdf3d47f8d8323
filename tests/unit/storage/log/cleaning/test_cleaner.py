"""The cleaner of a log directory: policies, swaps, concurrent changes of logs, checkpoints."""

from __future__ import annotations

import asyncio
import errno
import random
import struct

import pytest

from protocol.batch.header import iter_batches
from protocol.batch.records import Producer, Record, build_batch, read_batch, varint
from protocol.compression import Codec
from protocol.errors import ApiError
from runtime.clock import ManualClock, SystemClock
from storage.files import LossyFiles, MemoryFiles, RealFiles
from storage.log.checkpoints import CLEANER_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from storage.log.cleaning import cleaner, job
from storage.log.cleaning.cleaner import CleanerSettings, LogCleaner
from storage.log.cleaning.key_offsets import ENTRY_BYTES
from storage.log.cleaning.workers import LoopWorker, ProcessWorker, worker_for
from storage.log.config import LogConfig
from storage.log.errors import LogFailed
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.producers import Origin
from testkit.memory.cleaning import DAY_MS, TOPIC_ID, Cleaning, pairs
from testkit.memory.logs import T0, facts, newest_record, record_from
from testkit.records.batches import with_payload

KEY = ("topic", 0)


def small(**options: object) -> Cleaning:
    """Configure segments of a few batches."""
    return Cleaning(**({"segment_bytes": 300, "index_interval_bytes": 80} | options))  # type: ignore[arg-type]


def values(one: Cleaning) -> dict[str, str | None]:
    return {key: value for _, key, value in one.records()}


# Cleaning ------------------------------------------------------------------------------------


async def test_of_every_key_the_newest_record_stays():
    one = Cleaning()
    for at in range(20):
        one.append(*pairs(f"a={at}", f"b={at}", f"own{at}={at}"))
    assert await one.roll_and_clean()
    assert values(one) == {"a": "19", "b": "19"} | {f"own{at}": f"{at}" for at in range(20)}
    assert len(one.records()) == 22
    assert one.log.log_end_offset == 60 and one.log.log_start_offset == 0
    assert not await one.clean(), "nothing is dirty any more"


async def test_the_segment_being_written_is_never_cleaned():
    one = Cleaning()
    one.append(*pairs("a=1", "a=2"))
    assert not await one.clean()
    one.roll()
    one.append(*pairs("a=3", "a=4"))
    assert await one.clean()
    assert one.records() == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


async def test_nothing_above_the_high_watermark_is_cleaned():
    one = Cleaning()
    one.append(*pairs("a=1"))
    one.roll()
    one.append(*pairs("a=2"))
    one.roll()
    one.log.bounds.high_watermark = 1
    assert await one.clean()
    assert one.cleaner.checkpoints[KEY] == 1
    assert [value for _, _, value in one.records()] == ["1", "2"]


async def test_an_open_transaction_stops_cleaning():
    one = Cleaning()
    one.append(*pairs("a=1"))
    one.roll()
    one.append(*pairs("a=2"), producer=Producer(5, 0, 0, True))
    one.append(*pairs("a=3"))
    one.roll()
    assert one.log.last_stable_offset == 1
    assert await one.clean()
    assert one.cleaner.checkpoints[KEY] == 1
    assert len(one.records()) == 3


@pytest.mark.parametrize("policy", ["delete", ""])
async def test_other_topics_are_left_alone(policy):
    one = Cleaning(cleanup_policy=policy)
    one.append(*pairs("a=1", "a=2"))
    assert not await one.roll_and_clean()


async def test_a_log_waits_for_its_dirty_ratio():
    one = Cleaning(min_cleanable_dirty_ratio=0.5)
    one.append(*pairs(*(f"k{at}=x" for at in range(50))))
    assert await one.roll_and_clean()
    one.append(*pairs("k1=y"))
    assert not await one.roll_and_clean()
    one.append(*pairs(*(f"k{at}=z" for at in range(60))))
    assert await one.roll_and_clean()


async def test_the_minimum_lag_keeps_young_records():
    one = Cleaning(min_compaction_lag_ms=1000)
    one.append(*pairs("a=1", "a=2"))
    assert not await one.roll_and_clean()
    one.clock.advance(1001)
    assert await one.clean()
    assert [value for _, _, value in one.records()] == ["2"]


async def test_the_maximum_lag_closes_and_cleans_in_time():
    one = Cleaning(max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
    one.append(*pairs("a=1", "a=2"))
    one.clock.advance(1001)
    one.append(*pairs("b=1"))
    assert one.bases() == [0, 2], "the segment was closed by age"
    assert await one.clean()
    assert [value for _, _, value in one.records()] == ["2", "1"]
    assert one.cleaner.figures.max_delay_ms == 1


async def test_tombstones_go_after_their_time():
    one = Cleaning()
    one.append(*pairs("a=1", "b=1"))
    one.append(*pairs("a"))
    await one.roll_and_clean()
    assert one.records() == [(1, "b", "1"), (2, "a", None)]
    one.clock.advance(DAY_MS - 1)
    one.append(*pairs("x=1"))
    await one.roll_and_clean()
    assert "a" in values(one)
    one.clock.advance(1)
    one.append(*pairs("x=2"))
    await one.roll_and_clean()
    assert values(one) == {"b": "1", "x": "2"}


async def test_compact_and_delete_also_forgets_by_age():
    one = small(cleanup_policy="compact,delete", retention_ms=10_000)
    for at in range(12):
        one.append(*pairs(f"k{at}=" + "v" * 60))
    one.clock.advance(20_000)
    one.append(*pairs("k0=new"))
    await one.roll_and_clean()
    assert one.log.retention(one.clock.now_ms()) > 0
    assert "k0" in values(one)
    assert one.log.log_start_offset == one.bases()[0] > 0


async def test_retention_removes_an_emptied_segment_with_the_next_one():
    one = small(cleanup_policy="compact,delete", retention_ms=10_000)
    for at in range(12):
        one.append(*pairs("a=" + f"{at}".ljust(60)))
    one.roll()
    one.append(*pairs("a=last"))
    one.roll()
    await one.clean()
    empty = [segment for segment in one.log.segments if segment.size_bytes == 0]
    assert empty[0] is one.log.segments[0]
    assert one.log.retention(one.clock.now_ms()) == 0
    one.clock.advance(20_000)
    one.append(*pairs("b=1"))
    one.log.retention(one.clock.now_ms())
    assert values(one) == {"b": "1"}


async def test_a_small_map_takes_several_rounds():
    one = Cleaning(settings=CleanerSettings(dedupe_buffer_bytes=5 * ENTRY_BYTES, load_factor=1.0))
    for turn in range(2):
        for at in range(20):
            one.append(*pairs(f"k{at}={turn}"))
    one.roll()
    rounds = 0
    while await one.clean():
        rounds += 1
    assert rounds > 3
    assert len(one.records()) == 20 and set(values(one).values()) == {"1"}


async def test_the_dirtiest_log_comes_first():
    one = Cleaning()
    other = one.manager.get_or_create("other", 0, TOPIC_ID, one.config)
    batch = build_batch([Record(timestamp=T0, key=b"k", value=b"v")])
    one.append(*pairs("a=1"))
    await one.roll_and_clean()
    one.append(*pairs("a=2"))
    for log in (one.log, other):
        log.append_as_leader(batch, 0, T0)
        log.update_high_watermark(log.log_end_offset)
        log.roll()
        await log.flush()
    await one.cleaner.clean_one()
    assert one.cleaner.checkpoints == {KEY: 1, ("other", 0): 1}


# Remaining segments --------------------------------------------------------------------------


async def test_small_remains_are_joined_into_one_segment():
    one = small()
    for at in range(40):
        one.append(*pairs(f"k{at % 3}=" + f"{at}".ljust(40)))
    assert len(one.bases()) > 10
    await one.roll_and_clean()
    one.append(*pairs("k0=x"))
    await one.roll_and_clean()
    assert one.bases() == [0, 38, 41], "as many as one segment holds"
    assert not one.names(".swap") and not one.names(".cleaned")


async def test_a_restart_finds_the_same_log():
    one = small()
    for at in range(40):
        producer = Producer(1 + at % 2, 0, at // 2)
        one.append(*pairs(f"k{at % 5}=" + f"{at}".ljust(40)), producer=producer)
        one.clock.advance(10)
    await one.roll_and_clean()
    before = facts(one.log)
    await one.manager.close()
    again = small(files=one.files, clock=one.clock)
    again.log.update_high_watermark(again.log.log_end_offset)
    assert facts(again.log) == before
    assert again.cleaner.checkpoints == one.cleaner.checkpoints


async def test_sequences_survive_when_all_records_of_a_producer_went():
    one = Cleaning()
    one.append(*pairs("a=1"), producer=Producer(1, 0, 0))
    one.append(*pairs("a=2"), producer=Producer(1, 0, 1))
    one.append(*pairs("a=3"))
    await one.roll_and_clean()
    assert [header.record_count for header, _ in one.batches()] == [0, 1]
    for name in one.names(".snapshot"):
        one.files.unlink(f"{one.log.directory}/{name}")
    again = Log.open(one.files, one.log.directory, one.config, one.clock)
    state = again.producers.get(1)
    assert state is not None and (state.last_sequence, state.last_offset) == (1, 1)
    with pytest.raises(ApiError):
        batch = build_batch([Record(timestamp=T0, key=b"a")], producer=Producer(1, 0, 3))
        again.append_as_leader(batch, 0, T0, Origin.CLIENT)


async def test_epochs_and_times_are_still_found():
    one = small()
    for at in range(30):
        one.append(*pairs(f"k{at % 4}=" + f"{at}".ljust(40)), epoch=at // 10)
        one.clock.advance(100)
    end_of_first = one.log.history.end_offset_for(0)
    await one.roll_and_clean()
    assert one.log.history.end_offset_for(0) == end_of_first == (0, 10)
    found = record_from(one.log, T0)
    assert found is not None and found.offset == one.records()[0][0]
    highest = newest_record(one.log)
    assert highest is not None and highest.offset == 29


async def test_offsets_too_far_apart_get_segments_of_their_own():
    one = Cleaning()
    one.append(*pairs("a=1", "b=1"))
    far = 2**31 + 5
    batch = build_batch([Record(timestamp=T0, key=b"a", value=b"2")], far, leader_epoch=0)
    one.log.append_as_follower(batch)
    one.log.update_high_watermark(far + 1)
    await one.roll_and_clean()
    assert one.records() == [(1, "b", "1"), (far, "a", "2")]
    assert one.bases() == [0, far, far + 1]


# Readers -------------------------------------------------------------------------------------


async def test_a_reader_off_the_loop_survives_the_swap(tmp_path):
    one = Cleaning(RealFiles(), directory=str(tmp_path))
    for at in range(50):
        one.append(*pairs(f"k{at % 5}={at}", f"own{at}=x"))
    one.roll()
    await one.log.flush()
    newest = {key: offset for offset, key, _ in one.records()}

    async def read_all() -> dict[str, int]:
        found, offset = {}, 0
        while offset < one.log.log_end_offset:
            data = await one.log.read_cold(offset, 300, max_offset=one.log.log_end_offset)
            for header, pos in iter_batches(data):
                offset = header.next_offset
                for record in read_batch(data, pos, header):
                    found[(record.key or b"").decode()] = record.offset
        return found

    readers = [asyncio.ensure_future(read_all()) for _ in range(4)]
    await one.clean()
    for reader in readers:
        assert await reader == newest
    assert await read_all() == newest
    await one.manager.close()
    one.files.close()


# Concurrent changes --------------------------------------------------------------------------


class Paused:
    """A hook that stops a round at its n-th wait for the disk until `go_on` is set."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            await self.go_on.wait()


async def paused_in_the_swap() -> tuple[Cleaning, Paused, asyncio.Task[bool]]:
    """Return a log whose new segment has its `.swap` names, and its paused round."""
    files = LossyFiles(MemoryFiles())
    one = Cleaning(files)
    one.append(*pairs("a=1", "a=2", "b=1"))
    one.roll()
    await one.log.flush()
    await one.manager.checkpoints.save_recovery_points()
    pause = Paused(1)
    files.before_work = pause
    task = asyncio.ensure_future(one.cleaner.clean_one())
    await pause.reached.wait()
    assert one.names(".log.swap")
    return one, pause, task


async def test_a_truncation_before_the_swap_wins():
    one, pause, task = await paused_in_the_swap()
    one.log.truncate_to(0)
    assert not one.names(".swap"), "a start must not bring back what was cut"
    pause.go_on.set()
    await task
    assert one.records() == [] and one.cleaner.checkpoints.get(KEY, 0) == 0
    one.append(*pairs("c=1"))
    assert values(one) == {"c": "1"}


async def test_a_log_that_is_deleted_takes_its_round_along():
    one, pause, task = await paused_in_the_swap()
    assert one.manager.delete("topic", 0)
    again = one.manager.get_or_create("topic", 0, TOPIC_ID, one.config)
    pause.go_on.set()
    await task
    assert KEY not in one.cleaner.checkpoints
    names = one.files.listdir(again.directory)
    assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted"))]


async def test_appends_during_the_swap_are_kept():
    one, pause, task = await paused_in_the_swap()
    one.append(*pairs("a=3"))
    pause.go_on.set()
    await task
    assert one.records() == [(1, "a", "2"), (2, "b", "1"), (3, "a", "3")]


async def test_retention_waits_for_the_round():
    one, pause, task = await paused_in_the_swap()
    assert one.cleaner.holds(one.log)
    assert sum(one.manager.chores.retention_steps([*one.manager.logs])) == 0
    pause.go_on.set()
    await task
    assert list(one.manager.chores.retention_steps([*one.manager.logs])) == [0]


async def test_a_cancelled_round_leaves_nothing_behind():
    one, _, task = await paused_in_the_swap()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not one.names(".swap") and not one.names(".cleaned")
    assert len(one.records()) == 3


async def test_a_truncation_moves_the_checkpoint_back():
    one = Cleaning()
    one.append(*pairs("a=1"))
    one.append(*pairs("a=2"))
    await one.roll_and_clean()
    assert one.cleaner.checkpoints == {KEY: 2}
    one.log.truncate_to(1)
    await one.cleaner.checkpoint()
    assert one.manager.checkpoints.read(CLEANER_CHECKPOINT) == {KEY: 1}


async def test_a_deleted_log_leaves_the_checkpoint():
    one = Cleaning()
    one.append(*pairs("a=1"))
    await one.roll_and_clean()
    one.manager.delete("topic", 0)
    await one.cleaner.checkpoint()
    assert one.manager.checkpoints.read(CLEANER_CHECKPOINT) == {}


# Failures ------------------------------------------------------------------------------------


def spoil(one: Cleaning) -> None:
    """Change a byte of the first closed segment."""
    file = one.files.open(f"{one.log.directory}/00000000000000000000.log")
    content = bytearray(file.pread(file.size(), 0))
    content[70] ^= 1
    file.pwrite(bytes(content), 0)


async def test_cleaner_marks_a_log_uncleanable_after_an_unforeseen_error(
    monkeypatch: pytest.MonkeyPatch,
):
    """The error may occur in the cleaning process or on the loop: the cleaner continues with other
    logs."""
    one = Cleaning()
    one.append(*pairs("a=1", "a=2"))
    monkeypatch.setattr(job, "collect", fail_unforeseen)
    await one.roll_and_clean()
    assert one.cleaner.uncleanable == {KEY: one.log}
    monkeypatch.undo()
    other = one.manager.get_or_create("other", 0, b"o" * 16, one.config)
    monkeypatch.setattr(cleaner, "dirty_range", fail_unforeseen)
    other.append_as_leader(build_batch([Record(key=b"k")]), 0, 0, Origin.RAFT_LEADER)
    other.roll()
    assert not await one.cleaner.clean_one()
    assert one.cleaner.uncleanable == {KEY: one.log, ("other", 0): other}


def fail_unforeseen(*_: object, **__: object) -> None:
    raise struct.error("int too large")


@pytest.mark.parametrize("base", [2**63 - 1, -(2**63)])
@pytest.mark.parametrize("last", [b"\1\0", b"\2x\0"])
async def test_records_whose_timestamps_leave_int64_are_cleaned(base: int, last: bytes):
    """A topic whose records were not walked accepted them, and is compacted now."""
    one = Cleaning()
    delta = 1 if base > 0 else -1
    bodies = [
        b"\0" + varint(delta) + varint(at) + varint(1) + b"ab"[at % 2 : at % 2 + 1] + tail
        for at, tail in enumerate([varint(1) + b"v\0", varint(1) + b"w\0", last])
    ]
    payload = b"".join(varint(len(body)) + body for body in bodies)
    hostile = with_payload(payload, 3, base_timestamp=base, max_timestamp=base)
    for count in range(2):
        one.log.append_as_leader(hostile, 0, count, Origin.RAFT_LEADER)
        one.log.update_high_watermark(one.log.log_end_offset)
        assert await one.roll_and_clean()
    assert one.cleaner.uncleanable == {}
    assert one.records() == [(4, "b", "w"), (5, "a", None if last[0] == 1 else "x")]


async def test_cleaner_marks_an_unreadable_log_uncleanable():
    one = Cleaning()
    one.append(*pairs("a=1", "a=2"))
    one.roll()
    await one.log.flush()
    spoil(one)
    await one.cleaner.clean_one()
    assert one.cleaner.uncleanable == {KEY: one.log}
    assert not await one.clean(), "it is not tried again"
    assert not one.names(".cleaned")
    by_name = {family.name: list(family.samples) for family in one.cleaner.collect()}
    manager = "kafka_log_logcleanermanager_"
    assert by_name[f"{manager}uncleanable_partitions_count"] == [({"logDirectory": "/data"}, 1.0)]
    assert by_name[f"{manager}uncleanable_bytes"][0][1] > 0
    one.manager.delete("topic", 0)
    assert one.cleaner.uncleanable == {}


@pytest.mark.parametrize("dirty", [True, False])
@pytest.mark.parametrize(("limit", "cleanable"), [(2_000, False), (5_000, True)])
async def test_record_above_the_limit_of_its_topic_makes_a_log_uncleanable(
    limit: int, cleanable: bool, dirty: bool
) -> None:
    """Kafka 4.4: the cleaner observes the limit in clean parts of a log as well."""
    one = Cleaning(max_decompressed_message_bytes=limit)
    one.append(("a", "x" * 3_000), ("a", "1"), codec=Codec.GZIP)
    one.append(("b", "x" * 9_000))  # without compression there is no limit
    one.roll()
    if not dirty:
        one.cleaner.checkpoints[KEY] = 2
        one.append(("c", "1"))
        one.roll()
    await one.log.flush()
    assert await one.cleaner.clean_one()
    assert (one.cleaner.uncleanable == {}) is cleanable
    assert (one.cleaner.checkpoints.get(KEY, 0) > 2) is cleanable


async def test_a_disk_error_while_writing_is_tried_again_later():
    files = LossyFiles(MemoryFiles())
    one = Cleaning(files)
    one.append(*pairs("a=1", "a=2"))
    one.roll()

    def full(kind: str, path: str) -> None:
        if kind == "append" and path.endswith(".log.cleaned"):
            raise OSError(errno.ENOSPC, "no space", path)

    files.on_op = full
    await one.clean()
    assert one.log.failure is None and len(one.records()) == 2
    assert not one.names(".cleaned") and one.cleaner.uncleanable == {}
    assert not [file.path for file in files.opened if ".cleaned" in file.path]
    files.on_op = None
    assert not await one.clean(), "not at once"
    one.cleaner._put_off.clear()
    assert await one.clean()
    assert len(one.records()) == 1


async def test_a_disk_error_in_the_swap_closes_the_log():
    files = LossyFiles(MemoryFiles())
    one = Cleaning(files)
    one.append(*pairs("a=1", "a=2"))
    one.roll()

    def broken(kind: str, path: str) -> None:
        if kind == "rename" and path.endswith(".log.swap"):
            raise OSError(errno.EIO, "broken", path)

    files.on_op = broken
    await one.clean()
    with pytest.raises(LogFailed):
        one.append(*pairs("a=3"))
    files.on_op = None
    again = Cleaning(files)
    assert again.records() == [(1, "a", "2")], "the next start finishes the swap"


# The task ------------------------------------------------------------------------------------


async def test_cleaner_task_cleans_after_the_backoff(tmp_path):
    one = Cleaning(RealFiles(), directory=str(tmp_path))
    cleaned = asyncio.Event()

    def settings() -> CleanerSettings:
        if one.cleaner.checkpoints.get(KEY) == 2:
            cleaned.set()
        return CleanerSettings(backoff_ms=5)

    cleaner = LogCleaner(
        one.manager, LoopWorker(one.files, one.clock), clock=SystemClock(), settings=settings
    )
    one.cleaner = cleaner
    assert cleaner.checkpoints == {}
    task = asyncio.ensure_future(cleaner.run())
    await asyncio.sleep(0)
    one.append(*pairs("a=1", "a=2"))
    one.roll()
    await one.log.flush()
    async with asyncio.timeout(10):
        await cleaned.wait()
    task.cancel()
    await asyncio.wait([task])
    await cleaner.close()
    assert len(one.records()) == 1
    await one.manager.close()
    one.files.close()


@pytest.mark.parametrize("off", [{"enable": False}, {"threads": 0}])
async def test_a_cleaner_that_is_switched_off_does_nothing(off):
    one = Cleaning(settings=CleanerSettings(backoff_ms=10**9, **off))
    one.append(*pairs("a=1", "a=2"))
    one.roll()
    await one.log.flush()
    task = asyncio.ensure_future(one.cleaner.run())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert len(one.records()) == 2


async def test_a_helper_process_does_the_same(tmp_path):
    clock = ManualClock(T0)
    here = Cleaning(RealFiles(), clock=clock, directory=str(tmp_path / "here"))
    worker = ProcessWorker()
    there = Cleaning(RealFiles(), clock=clock, directory=str(tmp_path / "there"), worker=worker)
    for at in range(200):
        for one in (here, there):
            one.append(*pairs(f"k{at % 7}={at}", f"t{at % 3}"))
    for one in (here, there):
        assert await one.roll_and_clean()
    assert worker.helper.starts == 1
    assert facts(here.log) == facts(there.log)
    assert here.cleaner.figures.bytes_written == there.cleaner.figures.bytes_written
    for one in (here, there):
        await one.cleaner.close()
        await one.manager.close()
        one.files.close()
    assert worker.helper.pid is None


def test_the_worker_suits_the_files(tmp_path):
    clock = ManualClock(T0)
    assert isinstance(worker_for(RealFiles(), clock), ProcessWorker)
    assert isinstance(worker_for(MemoryFiles(), clock), LoopWorker)
    assert isinstance(worker_for(LossyFiles(RealFiles()), clock), LoopWorker)


async def test_nothing_is_cleaned_above_a_recovery_point_that_could_not_be_written():
    """P1, F20: after a crash the broker does not know which logs are compacted.

    A gap above the recovery point on disk counts as lost records there, and all records behind it
    are removed (seed 3498).
    """
    disk = LossyFiles(MemoryFiles())
    one = Cleaning(disk)
    refused = []

    def refuse(kind: str, path: str) -> None:
        if RECOVERY_POINT_CHECKPOINT in path and len(refused) < 2:
            refused.append(kind)
            raise OSError(errno.EIO, "broken", path)

    disk.on_op = refuse
    for at in range(4):
        one.append(*pairs(f"a={at}", "b=1"))
        one.roll()
    for _ in range(2):
        await one.clean()
        assert len(one.records()) == 8
        one.cleaner._put_off.clear()  # as with its next round
    assert len(refused) == 2
    assert await one.clean()
    assert len(one.records()) == 2
    again = LogManager(
        disk, "/data", clock=one.clock, rng=random.Random(1), config_for=lambda _topic: LogConfig()
    )
    again.load()
    assert again.logs["topic", 0].log_end_offset == 8
