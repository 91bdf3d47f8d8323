"""Recovery of a log after a crash, a torn write or a lost file (F20, F21)."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest

from protocol.batch.control import build_end_txn_marker
from protocol.batch.header import HEADER_BYTES
from protocol.batch.records import Producer
from storage.files import LossyFiles, MemoryFiles
from storage.log.errors import CorruptLog
from storage.log.producers import Origin
from testkit.memory.logs import (
    DIRECTORY,
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

FIRST = f"{DIRECTORY}/{0:020d}"
EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"
SMALL = {"segment_bytes": 400, "index_interval_bytes": 100}


def a_log(files, batches=9, **config):
    """Return a cleanly closed log with several segments, two epochs and two producers."""
    log = make_log(files, **{**SMALL, **config})
    for at in range(batches):
        producer = Producer(1 + at % 2, 0, at // 2)
        append(log, batch(size=40, timestamp=T0 + at, producer=producer, tag=f"{at}-"), at // 4)
    log.close()
    return log


def last_log_file(files):
    return max(name for name in files.listdir(DIRECTORY) if name.endswith(".log"))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 3, 9])
def test_a_restart_gives_an_equal_log(clean, recovery_point):
    files = MemoryFiles()
    before = facts(a_log(files))
    again = make_log(files, clean=clean, recovery_point=recovery_point, **SMALL)
    assert facts(again) == before
    assert again.recovery_report.problems == []
    assert append(again, batch(producer=Producer(1, 0, 5)), 2)[0] == 9


def test_the_tail_is_cut_to_the_last_whole_batch_at_every_byte():
    for cut in range(len(batch(size=40, tag="0-"))):
        files = MemoryFiles()
        whole = make_log(files)
        fill(whole, 3, size=40)
        expected = contents(whole)[:2]
        keep = whole.segments[0].size_bytes
        size = keep // 3
        file = files.open(FIRST + ".log")
        file.truncate(2 * size + cut)
        log = make_log(files)
        assert contents(log) == expected
        assert log.log_end_offset == 2
        assert file.size() == 2 * size
        assert log.recovery_report.truncated_bytes == cut
        assert bool(log.recovery_report.problems) == (cut > 0)
        assert append(log, batch())[0] == 2


def test_a_zeroed_tail_is_cut():
    files = MemoryFiles()
    log = make_log(files)
    fill(log, 3)
    file = files.open(FIRST + ".log")
    file.append(bytes(5000))
    again = make_log(files)
    assert contents(again) == contents(log)
    assert again.log_end_offset == 3


def test_a_zeroed_page_inside_a_batch_is_found():
    files = MemoryFiles()
    log = make_log(files)
    fill(log, 2, size=40)
    append(log, batch(size=3000))
    file = files.open(FIRST + ".log")
    file.pwrite(bytes(512), file.size() - 1024)
    assert make_log(files).log_end_offset == 2


def test_every_flipped_byte_above_the_recovery_point_is_found_and_cut():
    data = batch(size=20)
    for position in range(len(data)):
        files = MemoryFiles()
        log = make_log(files)
        append(log, data)
        append(log, data)
        append(log, data)
        file = files.open(FIRST + ".log")
        at = len(data) + position
        file.pwrite(bytes([file.pread(1, at)[0] ^ 0x40]), at)
        again = make_log(files)
        if position in range(0, 8) or position in range(12, 16):
            # The CRC covers neither base offset nor leader epoch; offsets must still grow.
            assert again.log_end_offset in (1, 3) or again.log_end_offset > 3
        else:
            assert again.log_end_offset == 1
            assert not any("lost" in problem for problem in again.recovery_report.problems)


def test_a_flip_below_the_recovery_point_is_reported():
    files = MemoryFiles()
    log = make_log(files)
    fill(log, 3)
    file = files.open(FIRST + ".log")
    file.pwrite(b"\xff", HEADER_BYTES + 2)
    again = make_log(files, recovery_point=3)
    assert "offsets 0 to 3 had been flushed and are lost here" in again.recovery_report.problems
    assert again.log_end_offset == 0


def test_segments_below_the_recovery_point_are_not_read():
    files = MemoryFiles()
    log = a_log(files)
    bases = [segment.base_offset for segment in log.segments]
    again = make_log(files, recovery_point=bases[-1], **SMALL)
    assert again.recovery_report.recovered_segments == 1


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_segments_behind_a_cut_go(policy):
    """In a compacted log no later check of offsets could distinguish the hole from a legal one."""
    files = MemoryFiles()
    log = a_log(files)
    bases = [segment.base_offset for segment in log.segments]
    path = f"{DIRECTORY}/{bases[1]:020d}.log"
    file = files.open(path)
    file.truncate(file.size() - 1)
    again = make_log(files, cleanup_policy=policy, **SMALL)
    assert [s.base_offset for s in again.segments] == bases[:2]
    assert again.log_end_offset < bases[2]
    assert again.snapshots.offsets == bases[1:2], "taken anew where the batches before are whole"
    assert [offset for offset, _ in contents(again)] == list(range(again.log_end_offset))


def test_a_hole_between_segments_is_not_a_log():
    files = MemoryFiles()
    log = a_log(files)
    bases = [segment.base_offset for segment in log.segments]
    one = len(batch(size=40, producer=Producer(1, 0, 0), tag="0-"))
    file = files.open(f"{DIRECTORY}/{bases[1]:020d}.log")
    file.truncate(file.size() - one)  # a whole batch: nothing looks broken
    again = make_log(files, **SMALL)
    assert again.log_end_offset == bases[2] - 1
    assert "missing" in again.recovery_report.problems[0]
    compacted = MemoryFiles()
    log = a_log(compacted)
    compacted.open(f"{DIRECTORY}/{bases[1]:020d}.log").truncate(file.size())
    assert make_log(compacted, cleanup_policy="compact", **SMALL).log_end_offset == 9


@pytest.mark.parametrize("gap", [6, 2**31])
def test_p2_recovery_accepts_offset_gaps_left_by_the_leaders_cleaner(gap):
    """P2, seed 5680: at a start the broker does not know which logs are compacted.

    A follower that rolled where its leader lacked some offsets was truncated there after a kill,
    and led without the rest.
    """
    files = MemoryFiles()
    log = make_log(files, **SMALL)
    for at in range(12):
        log.append_as_follower(batch(base_offset=at * gap, size=40, tag=f"{at}-"))
    assert len(log.segments) > 3
    again = make_log(files, **SMALL)
    assert again.recovery_report.problems == []
    assert again.log_end_offset == log.log_end_offset == 11 * gap + 1
    assert contents(again) == contents(log)


@pytest.mark.parametrize("settled_before", [False, True])
def test_removals_are_on_the_disk_when_a_log_has_been_closed(settled_before):
    """P18: no start looks for holes after a clean close, so a power cut behind it must leave
    none."""
    backing = MemoryFiles()
    a_log(backing, batches=30)
    files = LossyFiles(backing)
    tiered = {"remote_storage_enable": True, "local_retention_bytes": 1200}
    log = make_log(files, clean=True, file_delete_delay_ms=0, **tiered, **SMALL)
    log.update_high_watermark(log.log_end_offset)
    log.bounds.copied_to = log.segments.active.base_offset
    assert log.retention(T0) > 0
    if settled_before:
        log.durability.settle()
        assert not log.durability.is_unsettled
    log.close()
    files.crash()
    left = [int(name[:20]) for name in backing.listdir(DIRECTORY) if name.endswith(".log")]
    assert sorted(left) == [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_segment_that_went_before_its_end_was_flushed_does_not_come_back(blocking):
    """P18: local retention removes a segment whose end is only in the page cache.

    The next flush moves the recovery point past it. A power cut that undid the removal would leave
    a torn segment where recovery does not look (tiered seed 12).
    """
    for seed in range(20):
        backing = MemoryFiles()
        files = LossyFiles(backing)
        log = make_log(files, remote_storage_enable=True, file_delete_delay_ms=0)
        fill(log, 5)
        await log.flush()
        fill(log, 5)
        log.roll()
        fill(log, 5)
        log.update_high_watermark(log.log_end_offset)
        log.bounds.copied_to = log.segments.active.base_offset
        log.configure(replace(log.config, local_retention_bytes=1))
        assert log.retention(T0, limit=1) == 1
        if blocking:
            log.durability.flush_blocking()
        else:
            await log.flush()
        assert not log.durability.is_unsettled
        files.crash(random.Random(seed))
        again = make_log(backing, remote_storage_enable=True, recovery_point=log.recovery_point)
        assert [offset for offset, _ in contents(again)] == [10, 11, 12, 13, 14]


async def test_p18_segment_removed_during_a_flush_is_settled_by_the_next_flush():
    """P18: the flush under way may have flushed the folder already."""
    disk = LossyFiles(MemoryFiles())
    log = make_log(disk, remote_storage_enable=True, file_delete_delay_ms=0, **SMALL)
    fill(log, 30)
    await log.flush()
    log.update_high_watermark(log.log_end_offset)
    log.bounds.copied_to = log.segments.active.base_offset
    log.configure(replace(log.config, local_retention_bytes=1))
    assert log.retention(T0, limit=1) == 1
    fill(log, 1)
    taken: list[int] = []

    def second(kind: str, path: str) -> None:
        if kind == "fsync_dir" and not taken:
            taken.append(log.retention(T0, limit=1))

    disk.on_op = second
    await log.flush()
    assert taken == [1] and log.durability.is_unsettled
    fill(log, 1)
    await log.flush()
    assert not log.durability.is_unsettled


@pytest.mark.parametrize("lost", [{1}, {1, 2}, {1, 3}])
def test_removals_of_local_retention_that_came_out_of_order_are_finished(lost):
    """P18: after a crash a tiered log's oldest segments may return, but not some behind them.

    Segments before the last hole are removed; the log start stays, since the store has its records
    (tiered seed 185). A compacted log keeps its segments: it has holes.
    """
    tiered = make_log(MemoryFiles(), remote_storage_enable=True, **SMALL).config
    for config in (tiered, replace(tiered, cleanup_policy="compact")):
        files = MemoryFiles()
        bases = [segment.base_offset for segment in a_log(files, batches=30).segments]
        for at in lost:
            files.unlink(f"{DIRECTORY}/{bases[at]:020d}.log")
        supposed = {"remote_storage_enable": True, "recovery_point": bases[-1], **SMALL}
        again = make_log(files, **supposed)
        again.configure(config)
        left = [base for base in bases if config.compacted or base > bases[max(lost)]]
        left = [base for base in left if bases.index(base) not in lost]
        assert [segment.base_offset for segment in again.segments] == left
        assert (again.log_start_offset, again.local_log_start_offset) == (0, left[0])
        if not config.compacted:
            assert [offset for offset, _ in contents(again)] == list(range(left[0], 30))


def test_a_clean_marker_does_not_hide_a_broken_tail():
    files = MemoryFiles()
    log = a_log(files)
    files.open(f"{DIRECTORY}/{last_log_file(files)}").append(b"garbage")
    again = make_log(files, clean=True, recovery_point=9, **SMALL)
    assert facts(again) == facts(log)
    assert not again.recovery_report.clean


async def test_a_segment_closed_below_a_checkpoint_that_is_too_high_loses_nothing():
    """T2, F20: recovery does not read closed segments below the checkpoint.

    After a truncation the checkpoint is too high until it is written again, so a roll must flush
    the segment.
    """
    backing = MemoryFiles()
    files = LossyFiles(backing)
    log = make_log(files)
    fill(log, 10)
    await log.flush()
    log.bounds.checkpointed_recovery_point = 10
    log.truncate_to(4)
    await log.flush()
    for at in range(3):
        append(log, batch(tag=f"after-{at}"), 1)
    log.roll()
    files.fsync_dir(DIRECTORY)  # a disk may make a name durable early
    files.crash()
    again = make_log(LossyFiles(backing), recovery_point=10)
    assert [s.base_offset for s in again.segments] == [0, 7]
    assert [offset for offset, _ in contents(again)] == list(range(again.log_end_offset))
    assert again.log_end_offset == 7


async def test_p18_recovery_point_before_a_truncation_does_not_cover_later_records():
    """P18: the process is killed before it writes the checkpoint again.

    A power cut must not remove records that the next process treats as durable.
    """
    backing = MemoryFiles()
    files = LossyFiles(backing)
    log = make_log(files)
    fill(log, 10)
    await log.flush()
    log.truncate_to(4)
    for at in range(6):
        append(log, batch(tag=f"after-{at}"), 1)
    killed = make_log(files, recovery_point=10)
    assert await killed.flush() == 10
    written = contents(killed)
    files.crash()
    again = make_log(LossyFiles(backing), recovery_point=10)
    assert contents(again) == written


# Indexes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 4, 8])
@pytest.mark.parametrize("lose_time_index", [False, True])
def test_an_offset_that_no_index_can_hold_is_not_believed_after_a_clean_stop(at, lose_time_index):
    """Found by fuzzing: the CRC does not cover the base offset, and such a log could not be
    closed."""
    files = MemoryFiles()
    log = make_log(files, index_interval_bytes=100)
    for number in range(9):
        append(log, batch(size=40, timestamp=T0 + number))
    size = log.size_bytes // 9
    log.close()
    files.open(FIRST + ".log").pwrite((1 << 40).to_bytes(8, "big"), at * size)
    if lose_time_index:
        files.open(FIRST + ".timeindex").truncate(0)
    again = make_log(files, clean=True, index_interval_bytes=100)
    assert again.log_end_offset == (8 if at == 8 else 9)
    append(again, batch(timestamp=T0 + 20))
    again.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "cut", "garbage", "empty"])
def test_a_damaged_index_is_rebuilt_when_it_is_needed(suffix, damage):
    files = MemoryFiles()
    log = a_log(files, batches=20, segment_bytes=1200)
    before = facts(log)
    for segment in list(log.segments)[:-1]:
        path = segment.prefix + suffix
        file = files.open(path)
        if damage == "missing":
            files.unlink(path)
        elif damage == "cut":
            file.truncate(max(0, file.size() - 1))
        elif damage == "garbage":
            file.pwrite(b"\xff" * file.size(), 0)
        else:
            file.truncate(0)
    again = make_log(files, clean=True, segment_bytes=1200, index_interval_bytes=100)
    assert facts(again) == before
    for offset in range(20):
        assert record_from(again, T0 + offset) == (T0 + offset, offset, offset // 4)


TIMES = [T0 + at + 5 * (at % 7 == 0) for at in range(24)]
"""Mostly rising times, as of producers' clocks."""


def a_log_of_one_segment(files):
    """Write and cleanly close a log of one segment. Returns: the size of each of its batches."""
    log = make_log(files, index_interval_bytes=200)
    for at, timestamp in enumerate(TIMES):
        append(log, batch(2, size=40, timestamp=timestamp, tag=f"{at}-"))
    size = log.size_bytes // len(TIMES)
    log.close()
    return size


def read_everything(log):
    """Return the results of reads from every offset and every time."""
    highest = newest_record(log)
    first = {at: contents(log, at)[:1] for at in range(log.log_end_offset)}
    bounded = {at: contents(log, end=at) for at in range(log.log_end_offset)}
    by_time = {time: record_from(log, time) for time in range(T0 - 1, T0 + 30)}
    return first, bounded, by_time, highest


@pytest.mark.parametrize("entry", [0, 1, 3, -1])
@pytest.mark.parametrize(
    "damage",
    [
        "later batch", "middle of a batch", "end", "behind the end", "negative", "lower offset",
        "higher offset",
    ],
)  # fmt: skip
def test_an_offset_index_that_points_elsewhere_makes_no_reader_skip_a_record(entry, damage):
    """P6: an entry is a hint; an impossible one is replaced by a search of the batches."""
    files = MemoryFiles()
    size = a_log_of_one_segment(files)
    entries = list(struct.iter_unpack(">ii", files.read(FIRST + ".index")))
    offset, position = entries[entry]
    offset, position = {
        "later batch": (offset, min(position + 2 * size, size * (len(TIMES) - 1))),
        "middle of a batch": (offset, position + 7),
        "end": (offset, size * len(TIMES)),
        "behind the end": (offset, size * len(TIMES) + 1000),
        "negative": (offset, -position),
        "lower offset": (offset - 3, position),
        "higher offset": (offset + 1, position),
    }[damage]
    expected = read_everything(make_log(files, clean=True, index_interval_bytes=200))
    at = entry % len(entries) * 8
    files.open(FIRST + ".index").pwrite(struct.pack(">ii", offset, position), at)
    assert read_everything(make_log(files, clean=True, index_interval_bytes=200)) == expected


@pytest.mark.parametrize("index", [".index", ".timeindex"])
@pytest.mark.parametrize("opened", ["written", "recovered", "opened"])
def test_p6_index_that_rots_under_an_open_log_is_rebuilt_each_time(opened, index):
    """P6: bits flip on a disk long after the file was written, checked or repaired."""
    files = MemoryFiles()
    log = make_log(files, index_interval_bytes=200)
    for at, timestamp in enumerate(TIMES):
        append(log, batch(2, size=40, timestamp=timestamp, tag=f"{at}-"))
    if opened != "written":
        log.close()
        log = make_log(files, clean=opened == "opened", index_interval_bytes=200)
    log.roll()
    expected = read_everything(log)
    for _ in range(2):
        file = files.open(FIRST + index)
        file.pwrite(b"\x00\x00\x7f\x00" * (file.size() // 4), 0)
        assert read_everything(log) == expected


@pytest.mark.parametrize("entry", [0, 1, 2, -1])
@pytest.mark.parametrize(
    "damage", ["later offset", "behind the end", "lower time", "higher time", "before the segment"]
)
def test_a_time_index_that_points_elsewhere_makes_no_question_by_time_skip_a_record(entry, damage):
    files = MemoryFiles()
    a_log_of_one_segment(files)
    entries = list(struct.iter_unpack(">qi", files.read(FIRST + ".timeindex")))
    timestamp, offset = entries[entry]
    timestamp, offset = {
        "later offset": (timestamp, offset + 6),
        "behind the end": (timestamp, 1000),
        "lower time": (timestamp - 3, offset),
        "higher time": (timestamp + 2, offset),
        "before the segment": (timestamp, -5),
    }[damage]
    expected = read_everything(make_log(files, clean=True, index_interval_bytes=200))
    at = entry % len(entries) * 12
    files.open(FIRST + ".timeindex").pwrite(struct.pack(">qi", timestamp, offset), at)
    assert read_everything(make_log(files, clean=True, index_interval_bytes=200)) == expected


def test_a_preallocated_index_of_zeros_is_rebuilt():
    files = MemoryFiles()
    log = a_log(files)
    for segment in log.segments:
        files.open(segment.prefix + ".index").append(bytes(800))
        files.open(segment.prefix + ".timeindex").append(bytes(1200))
    assert facts(make_log(files, **SMALL)) == facts(log)
    assert files.size(log.segments[0].prefix + ".index") < 800


def test_orphans_and_leftovers_are_removed():
    files = MemoryFiles()
    a_log(files)
    for name in (
        f"{77:020d}.index",
        f"{77:020d}.timeindex",
        f"{88:020d}.log.deleted",
        f"{0:020d}.log.cleaned",
        f"{0:020d}.index.cleaned",
        "leader-epoch-checkpoint.3.tmp",
    ):
        files.open(f"{DIRECTORY}/{name}", create=True).append(b"?")
    log = make_log(files, clean=True, **SMALL)
    assert log.log_end_offset == 9
    assert not [n for n in files.listdir(DIRECTORY) if n.endswith((".cleaned", ".deleted", ".tmp"))]
    assert f"{77:020d}.index" not in files.listdir(DIRECTORY)


def test_a_finished_compaction_is_taken_over():
    files = MemoryFiles()
    log = a_log(files)
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 3, 6]
    # The cleaner merged the first two segments and crashed after its decision.
    merged = b"".join(files.read(f"{DIRECTORY}/{base:020d}.log") for base in bases[:2])
    one = len(batch(size=40, producer=Producer(1, 0, 0), tag="0-"))
    files.open(f"{FIRST}.log.swap", create=True).append(merged[one:])
    files.open(f"{FIRST}.index.swap", create=True)
    files.open(f"{FIRST}.timeindex.swap", create=True)
    again = make_log(files, clean=True, cleanup_policy="compact", **SMALL)
    assert [s.base_offset for s in again.segments] == [bases[0], *bases[2:]]
    assert [offset for offset, _ in contents(again)] == list(range(1, 9))
    assert not [name for name in files.listdir(DIRECTORY) if name.endswith(".swap")]


@pytest.mark.parametrize("name", ["x.log", "1.log", f"{2**63:020d}.log", f"{-1:020d}.log"])
def test_a_strange_segment_name_stops_the_start(name):
    files = MemoryFiles()
    a_log(files)
    files.touch(f"{DIRECTORY}/{name}")
    with pytest.raises(CorruptLog):
        make_log(files, clean=True)


# Epochs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n3\n0 0\n",
        b"0\n2\n1 4\n0 0\n",
        b"0\nx\n",
        b"\xff\xfe",
        b"0\n0\n",
    ],
)
def test_a_lost_or_broken_epoch_checkpoint_is_rebuilt(clean, content):
    files = MemoryFiles()
    log = a_log(files)
    if content is None:
        files.unlink(EPOCHS)
    else:
        files.write_atomic(EPOCHS, content)
    again = make_log(files, clean=clean, recovery_point=9, **SMALL)
    assert again.epochs.entries == log.epochs.entries == [(0, 0), (1, 4), (2, 8)]
    again.close()
    assert files.read(EPOCHS) == b"0\n3\n0 0\n1 4\n2 8\n"


def test_p18_recovery_writes_the_epochs_it_finds_before_the_log_opens() -> None:
    """P18: the checkpointed high watermark may be above an epoch that no file contained."""
    files = MemoryFiles()
    log = a_log(files)
    files.write_atomic(EPOCHS, b"0\n1\n0 0\n")
    again = make_log(files, **SMALL)
    assert files.read(EPOCHS) == b"0\n3\n0 0\n1 4\n2 8\n"
    assert again.log_end_offset == log.log_end_offset
    assert not again.epochs.dirty


@pytest.mark.parametrize(
    "content",
    [
        b"0\n1\n0 0\n",  # written before the later epochs began
        b"0\n2\n0 0\n7 20\n",  # contains an epoch that was truncated
        b"0\n3\n0 0\n1 4\n9 6\n",  # of another history
        b"0\n2\n0 0\n1 2\n",
    ],
)
def test_after_a_crash_the_batches_overrule_the_checkpoint(content):
    files = MemoryFiles()
    log = a_log(files)
    files.write_atomic(EPOCHS, content)
    again = make_log(files, recovery_point=0, **SMALL)
    assert again.epochs.entries == log.epochs.entries


def test_an_epoch_without_a_batch_survives_a_restart_only_in_an_empty_log():
    files = MemoryFiles()
    log = make_log(files)
    log.truncate_fully_and_start_at(7)
    log.history.lead(3)
    log.close()
    again = make_log(files, clean=True)
    assert (again.log_end_offset, again.latest_epoch) == (7, 3)
    append(again, batch(), 3)
    again.history.lead(5)
    assert again.latest_epoch == 5
    again.close()
    assert make_log(files, clean=True).latest_epoch == 3


# Producers -----------------------------------------------------------------------------------


def snapshots(files):
    return sorted(name for name in files.listdir(DIRECTORY) if name.endswith(".snapshot"))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing last", "missing all", "broken last", "broken all"])
def test_producer_state_survives_its_snapshots(clean, damage):
    files = MemoryFiles()
    log = a_log(files)
    names = snapshots(files)
    assert len(names) > 2
    for name in names if damage.endswith("all") else names[-1:]:
        if damage.startswith("missing"):
            files.unlink(f"{DIRECTORY}/{name}")
        else:
            files.open(f"{DIRECTORY}/{name}").pwrite(b"\x55", 8)
    again = make_log(files, clean=clean, recovery_point=9, **SMALL)
    assert facts(again) == facts(log)
    assert append(again, batch(producer=Producer(1, 0, 5)), 2)[0] == 9


def test_snapshots_behind_the_log_end_and_strays_go():
    files = MemoryFiles()
    log = a_log(files)
    bases = {segment.base_offset for segment in log.segments}
    stray = next(offset for offset in range(1, 9) if offset not in bases)
    content = files.read(f"{DIRECTORY}/{snapshots(files)[-1]}")
    for offset in (stray, 99):
        files.write_atomic(f"{DIRECTORY}/{offset:020d}.snapshot", content)
    again = make_log(files, clean=True, **SMALL)
    assert set(again.snapshots.offsets) == (bases - {0}) | {9}
    assert facts(again) == facts(log)


def test_transactions_and_their_index_are_recovered():
    files = MemoryFiles()
    log = make_log(files)
    open_txn = Producer(3, 1, 0, transactional=True)
    append(log, batch(2, producer=open_txn))
    append(log, batch(1, producer=Producer(4, 0, 0, transactional=True)))
    append(log, _marker(4, 0, commit=False), 0, Origin.COORDINATOR)
    aborted = log.reader.aborted_transactions(0, 4)
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == [(4, 2, 3)]
    assert aborted[0].last_stable_offset == 0
    log.update_high_watermark(4)
    assert log.last_stable_offset == 0
    for clean in (True, False):
        log.close()
        log = make_log(files, clean=clean)
        log.update_high_watermark(4)
        assert log.last_stable_offset == 0
        assert log.reader.aborted_transactions(0, 4) == aborted
    append(log, _marker(3, 1, commit=True), 0, Origin.COORDINATOR)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 0  # the marker is not replicated yet
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    assert log.reader.aborted_transactions(0, 5) == aborted


def _marker(producer_id, epoch, *, commit):
    return build_end_txn_marker(
        producer_id, epoch, commit=commit, coordinator_epoch=2, timestamp_ms=T0
    )


# Log start -----------------------------------------------------------------------------------


def test_the_log_start_checkpoint_counts():
    files = MemoryFiles()
    a_log(files)
    log = make_log(files, clean=True, log_start_offset=5, **SMALL)
    assert log.log_start_offset == log.local_log_start_offset == 5
    assert log.epochs.entries == [(1, 5), (2, 8)]


def test_recovered_log_that_ends_below_its_start_is_emptied_at_the_start():
    files = MemoryFiles()
    a_log(files)
    log = make_log(files, log_start_offset=50, **SMALL)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert [segment.base_offset for segment in log.segments] == [50]
    assert append(log, batch(), 3)[0] == 50


def test_log_restarted_at_its_start_has_the_same_start_after_a_power_cut():
    """The name of its first segment then has the start, so the checkpoint is not needed."""
    backing = MemoryFiles()
    files = LossyFiles(backing)
    log = make_log(files, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    files.crash()
    again = make_log(LossyFiles(backing))
    assert (again.log_start_offset, again.log_end_offset) == (40, 40)


def test_a_log_emptied_to_an_offset_is_at_it_after_a_power_cut():
    backing = MemoryFiles()
    files = LossyFiles(backing)
    make_log(files).truncate_fully_and_start_at(40)
    files.crash()
    again = make_log(LossyFiles(backing))
    assert (again.log_start_offset, again.log_end_offset) == (40, 40)
