"""A tiered log's bounds: data that only the store has, apart from local data (S1, S2, S5, S9)."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from protocol.batch.records import Producer
from storage.files import LossyFiles, MemoryFiles
from storage.log.bootstrap import MARKER, Beginning
from storage.log.epochs import EpochCache, EpochEntry
from storage.log.errors import BelowLocalStart, LogFailed
from storage.log.log import Log, LogHooks
from storage.log.producers import CorruptSnapshot
from testkit.memory.logs import DIRECTORY, T0, append, batch, contents, fill, make_log
from testkit.memory.power_cut import PowerCut

LOCAL_START, LOG_START = 40, 10
EPOCHS = (EpochEntry(1, 10), EpochEntry(4, 25))


def tiered(files: MemoryFiles | LossyFiles | None = None, **options: object) -> Log:
    settings = {"segment_bytes": 200, "remote_storage_enable": True, "local_retention_bytes": 0}
    return make_log(files, **{**settings, **options})  # type: ignore[arg-type]


def half_local(files: MemoryFiles | None = None, **options: object) -> Log:
    """Return a log of ten batches in two epochs, with the first ones only in the store."""
    log = tiered(files, **options)
    fill(log, 3, epoch=2, size=50)
    fill(log, 7, epoch=5, size=50)
    log.update_high_watermark(10)
    log.bounds.copied_to = 7
    assert log.retention(T0) > 0
    assert 3 < log.local_log_start_offset <= 7
    return log


def snapshot(at: int = LOCAL_START) -> bytes:
    log = make_log()
    append(log, batch(producer=Producer(77, 3, 5)))
    return log.producers.encode_snapshot()


def beginning(**changed: object) -> Beginning:
    parts = {
        "log_start_offset": LOG_START,
        "local_start_offset": LOCAL_START,
        "epochs": EPOCHS,
        "producers": snapshot(),
    }
    return Beginning(**{**parts, **changed})  # type: ignore[arg-type]


async def nothing_to_save() -> None:
    pass


# Retention -----------------------------------------------------------------------------------


def test_s2_local_retention_takes_only_what_has_a_finished_copy():
    log = tiered()
    fill(log, 10, size=50)
    log.update_high_watermark(10)
    bases = [segment.base_offset for segment in log.segments]
    assert log.retention(T0) == 0, "the store is down, or not known yet (S9)"
    log.bounds.copied_to = bases[2] - 1
    log.retention(T0)
    assert log.segments.first_base_offset == bases[1], "the second segment is not wholly copied"
    log.bounds.copied_to = bases[2]
    log.retention(T0)
    assert log.local_log_start_offset == log.segments.first_base_offset == bases[2]
    assert log.log_start_offset == 0


def test_s4_what_lies_below_the_log_start_goes_without_a_copy_once_that_is_on_the_disk():
    """After a crash a tiered log begins at the checkpoint: no broker would have those records."""
    log = tiered()
    fill(log, 10, size=50)
    log.update_high_watermark(10)
    log.advance_log_start(6)
    assert log.bounds.owes_log_start
    assert log.retention(T0) == 0
    log.trimming.saved(6)
    assert not log.bounds.owes_log_start
    assert log.retention(T0) > 0
    assert log.log_start_offset == log.local_log_start_offset == 6


@pytest.mark.parametrize(
    "limits",
    [
        {"local_retention_bytes": 0},
        {"local_retention_ms": 1000, "local_retention_bytes": -1},
        {"retention_ms": 1000, "local_retention_bytes": -2},
    ],
)
def test_a_last_segment_past_local_retention_is_closed_so_that_it_can_be_copied(limits):
    """As in Kafka: otherwise a quiet partition would keep its newest records forever."""
    log = tiered(**limits)
    fill(log, 10, size=50)
    later = T0 + 1_000_000
    last = log.segments.active.base_offset
    log.bounds.copied_to = last - 1
    log.update_high_watermark(10)
    log.retention(later)
    assert log.segments.active.base_offset == last, "one before it has no copy yet"
    log.bounds.copied_to = last
    log.update_high_watermark(9)
    log.retention(later)
    assert log.segments.active.base_offset == last, "not all of it is committed"
    log.update_high_watermark(10)
    log.retention(later)
    assert [one.base_offset for one in log.segments] == [last, 10]
    log.retention(later)
    assert [one.base_offset for one in log.segments] == [last, 10], "it is closed, not deleted"
    log.bounds.copied_to = 10
    log.retention(later)
    assert [one.base_offset for one in log.segments] == [10]
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 10)
    log.retention(later)
    assert [one.base_offset for one in log.segments] == [10], "an empty one stays"


@pytest.mark.parametrize(
    "limits",
    [
        {"local_retention_bytes": 1},
        {"local_retention_ms": 2_000_000, "local_retention_bytes": -1},
        {"local_retention_bytes": 0, "remote_storage_enable": False, "retention_bytes": 1},
        {"local_retention_bytes": 0, "cleanup_policy": ""},
    ],
)
def test_a_last_segment_within_local_retention_stays_open(limits):
    log = tiered(**limits)
    fill(log, 10, size=50)
    log.update_high_watermark(10)
    log.bounds.copied_to = last = log.segments.active.base_offset
    log.retention(T0 + 1_000_000)
    assert log.segments.active.base_offset == last


def test_s4_with_copies_disabled_the_log_start_moves_first():
    """Copies that the tier has of these records do not count."""
    log = tiered(remote_log_copy_disable=True, retention_bytes=0)
    fill(log, 10, size=50)
    log.update_high_watermark(10)
    log.bounds.copied_to = 10
    assert log.retention(T0) == 0
    assert log.log_start_offset == log.local_log_start_offset == 10
    assert log.segments.first_base_offset == 0
    log.trimming.saved(10)
    assert log.retention(T0) > 0
    assert (
        log.log_start_offset == log.local_log_start_offset == log.segments.first_base_offset == 10
    )


def test_a_log_that_leaves_the_store_starts_where_it_is_local():
    log = half_local()
    local = log.local_log_start_offset
    assert log.trimming.leave_remote()
    assert log.log_start_offset == log.local_log_start_offset == local
    log.trimming.saved(local)
    assert log.epochs.entries == [EpochEntry(5, local)]
    assert not log.trimming.leave_remote()


def test_s4_what_the_store_has_goes_from_the_disk_once_the_log_start_is_safe():
    """A log becomes tiered after retention removed its oldest segments.

    No checkpoint contains its start, so after a crash only its first segment does.
    """
    due: list[Log] = []
    options = {"retention_bytes": 300, "remote_storage_enable": False}
    log = tiered(hooks=LogHooks(start_owed=due.append), **options)
    fill(log, 10, size=50)
    log.update_high_watermark(10)
    assert log.retention(T0) > 0
    start = log.log_start_offset
    assert not log.bounds.owes_log_start
    assert due == []
    log.configure(replace(log.config, remote_storage_enable=True))
    assert log.bounds.owes_log_start
    assert due == [log]
    log.bounds.copied_to = log.segments.active.base_offset
    assert log.retention(T0) == 0
    log.trimming.saved(start)
    assert not log.bounds.owes_log_start
    assert log.retention(T0) > 0
    assert log.log_start_offset == start < log.local_log_start_offset


def test_s4_log_start_not_checkpointed_is_owed_when_the_log_becomes_tiered():
    files = MemoryFiles()
    options = {"retention_bytes": 300, "remote_storage_enable": False}
    before = tiered(files, **options)
    fill(before, 10, size=50)
    before.update_high_watermark(10)
    assert before.retention(T0) > 0
    log = tiered(files, **options)
    assert log.log_start_offset > 0
    log.configure(replace(log.config, remote_storage_enable=True))
    assert log.bounds.owes_log_start


def test_s4_a_log_that_leaves_the_store_owes_its_start():
    """KIP-950: tiered again, the log would begin after a crash where there is no copy any more."""
    due: list[Log] = []
    log = half_local(hooks=LogHooks(start_owed=due.append))
    log.configure(replace(log.config, remote_storage_enable=False))
    assert log.bounds.owes_log_start
    assert due == [log]


@pytest.mark.parametrize("restarted", [False, True])
def test_s4_a_log_that_was_tiered_deletes_nothing_that_the_checkpoint_promises(restarted):
    """Tiered again after a crash, the log would begin where neither disk nor store has records
    (tiered seed 316)."""
    files = MemoryFiles()
    log = half_local(files)
    log.advance_log_start(1)
    log.trimming.saved(1)
    if restarted:
        log.close(clean=False)
        log = tiered(files, log_start_offset=1, recovery_point=10)
        log.update_high_watermark(10)
        log.bounds.tiering_known = False
    log.configure(replace(log.config, remote_storage_enable=False, retention_bytes=0))
    local = log.local_log_start_offset
    assert log.retention(T0) == 0
    assert log.bounds.owes_log_start
    assert (log.log_start_offset, log.segments.first_base_offset) == (10, local)
    log.trimming.saved(10)
    assert log.retention(T0) > 0
    assert log.segments.first_base_offset > local


def test_log_truncated_below_its_start_invalidates_the_saved_log_start():
    log = half_local()
    log.advance_log_start(8)
    log.trimming.saved(8)
    log.truncate_to(6)
    assert log.log_start_offset == log.bounds.saved_log_start == 6
    log.trimming.saved(6)
    append(log, batch(), epoch=6)
    fill(log, 3, epoch=6)
    log.update_high_watermark(log.log_end_offset)
    log.advance_log_start(8)
    assert log.bounds.saved_log_start == 6
    assert log.bounds.owes_log_start


# The bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stays_tiered", [True, False])
def test_until_it_is_known_whether_a_log_is_tiered_nothing_of_the_store_is_forgotten(stays_tiered):
    """S4, S5: logs are opened before the metadata is read."""
    files = MemoryFiles()
    before = half_local(files)
    before.close()
    log = make_log(files, segment_bytes=200, remote_storage_enable=True, clean=True)
    local = log.local_log_start_offset
    assert (log.log_start_offset, local) == (0, before.local_log_start_offset)
    log.configure(replace(log.config, remote_storage_enable=stays_tiered))
    assert log.log_start_offset == (0 if stays_tiered else local)
    log.trimming.saved(log.log_start_offset)
    assert log.epochs.epoch_at(0) == (2 if stays_tiered else -1)
    assert log.epochs.epoch_at(local) == 5


def test_s5_recovery_rewrites_the_producer_snapshot_of_each_segment():
    """T2: retention removes the last older snapshot with its segment.

    After the next crash the producers at the local start would be unknown.
    """
    files = MemoryFiles()
    log = tiered(files)
    for sequence in range(6):
        append(log, batch(size=100, producer=Producer(7, 0, sequence)))
    bases = [segment.base_offset for segment in log.segments]
    kept = {base: files.read(log.snapshots.path(base)) for base in bases[1:]}
    for recovery_point in (bases[2], 0):
        again = tiered(files, recovery_point=recovery_point)
        found = {base: files.read(again.snapshots.path(base)) for base in bases[1:]}
        assert found == kept
    again.update_high_watermark(again.log_end_offset)
    again.bounds.copied_to = bases[3]
    assert again.retention(T0) == 3
    last = tiered(files, recovery_point=0)
    assert not last.producer_history.lacks_beginning
    assert last.local_log_start_offset == bases[3]
    append(last, batch(producer=Producer(7, 0, 6)))


def test_an_empty_log_keeps_the_epoch_that_is_to_begin_at_its_end():
    files = MemoryFiles()
    log = make_log(files, segment_bytes=200, retention_bytes=0)
    fill(log, 3, size=50)
    log.update_high_watermark(3)
    assert log.retention(T0) > 0
    log.history.lead(4)
    log.close()
    again = make_log(files, remote_storage_enable=True, clean=True)
    assert (again.log_start_offset, again.local_log_start_offset) == (0, 3)
    assert again.latest_epoch == 4


def test_s1_the_high_watermark_is_never_below_the_local_log_start():
    files = MemoryFiles()
    log = half_local(files)
    local = log.local_log_start_offset
    assert log.update_high_watermark(0) == local
    log.close()
    again = tiered(files, clean=True)
    assert again.high_watermark == again.local_log_start_offset == local
    assert again.log_start_offset == 0


def test_a_cut_below_the_local_start_leaves_what_the_store_holds():
    log = half_local()
    log.truncate_to(2)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 2, 2)
    assert log.high_watermark == log.bounds.copied_to == 2
    assert log.epochs.entries == [EpochEntry(2, 0)]
    assert log.producer_history.lacks_beginning and not log.history.lacks_remote_part
    with pytest.raises(BelowLocalStart):
        log.read(1, 100, max_offset=2)


def test_a_cut_below_the_local_start_is_the_same_after_a_restart():
    files = MemoryFiles()
    log = half_local(files)
    log.truncate_to(2)
    log.close()
    again = tiered(files, clean=True)
    assert (again.log_start_offset, again.local_log_start_offset) == (0, 2)
    assert again.epochs.entries == [EpochEntry(2, 0)]
    assert again.producer_history.lacks_beginning


def test_a_copied_offset_is_forgotten_where_the_log_is_cut():
    log = half_local()
    log.bounds.copied_to = 10
    log.truncate_to(8)
    assert log.bounds.copied_to == log.log_end_offset == 8


# A lost file of epochs -----------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_below_the_local_start_are_missed_until_they_are_put_back(clean):
    files = MemoryFiles()
    log = half_local(files)
    assert not log.history.lacks_remote_part and not log.producer_history.lacks_beginning
    local, before = log.local_log_start_offset, log.epochs.entries
    log.history.write()
    log.close(clean=clean)
    files.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
    again = tiered(files, clean=clean)
    assert again.epochs.entries == [EpochEntry(5, local)]
    assert again.history.lacks_remote_part
    assert again.history.restore(before)
    assert again.epochs.entries == before
    assert not again.history.lacks_remote_part
    assert again.epochs.dirty, "what was put back is to be written"
    assert not again.history.restore(before)


def test_t2_producers_of_what_only_the_store_has_are_put_back():
    """One producer has written nothing since; for the other, the batch before is known, too."""
    files = MemoryFiles()
    log = tiered(files)
    quiet, busy = Producer(7, 0, 0), Producer(8, 1, 0)
    for producer in (quiet, busy, busy._replace(sequence=1), busy._replace(sequence=2)):
        append(log, batch(size=100, producer=producer))
    log.update_high_watermark(4)
    log.bounds.copied_to = 3
    assert log.retention(T0) == 3
    at_start = files.read(log.snapshots.path(3))
    log.close(clean=False)
    for path in log.snapshots.offsets:
        files.unlink(log.snapshots.path(path))
    again = tiered(files)
    assert again.producer_history.lacks_beginning and again.producers.get(7) is None
    assert again.producer_history.restore(at_start)
    assert not again.producer_history.lacks_beginning
    assert again.snapshots.offsets == [3]
    for repeated in (quiet, busy._replace(sequence=1), busy._replace(sequence=2)):
        assert append(again, batch(size=100, producer=repeated)).duplicate
    assert not again.producer_history.restore(at_start)
    again.close(clean=False)
    assert append(tiered(files), batch(size=100, producer=quiet)).duplicate, "it is in a file again"


def test_a_file_that_contradicts_the_batches_is_believed_below_the_local_start():
    files = MemoryFiles()
    log = half_local(files)
    before = log.epochs.entries
    log.close(clean=False)
    cut = b"0\n3\n2 0\n5 3\n9 8\n"  # epoch 9 was truncated, and the file contains it
    files.write_atomic(f"{DIRECTORY}/leader-epoch-checkpoint", cut)
    assert tiered(files).epochs.entries == before


def test_entries_put_before_the_first_known_epoch():
    cache = EpochCache([(5, 30), (7, 50)])
    assert cache.prepend([(1, 0), (3, 10), (5, 20), (6, 40)])
    assert cache.entries == [(1, 0), (3, 10), (5, 20), (7, 50)]
    assert not cache.prepend([(5, 30)])
    assert not cache.prepend([])
    assert not cache.prepend([(6, 10)]), "an epoch above the first known one is of another lineage"
    empty = EpochCache()
    assert empty.prepend([(1, 0), (2, 5)]) and empty.entries == [(1, 0), (2, 5)]


# Beginning in the middle ---------------------------------------------------------------------


async def test_s5_a_log_begins_in_the_middle_with_what_lies_before():
    files, saved = MemoryFiles(), []
    log = tiered(files)
    fill(log, 5, epoch=0, size=50)

    async def save() -> None:
        assert files.exists(f"{DIRECTORY}/{MARKER}"), "the marker goes last"
        saved.append(log.log_start_offset)

    assert await log.begin_at(beginning(), save)
    assert saved == [LOG_START]
    assert not log.bounds.bootstrapping and not files.exists(f"{DIRECTORY}/{MARKER}")
    assert log.log_start_offset == LOG_START
    assert log.local_log_start_offset == log.log_end_offset == log.high_watermark == LOCAL_START
    assert log.epochs.entries == list(EPOCHS)
    assert log.producers.encode_snapshot() == snapshot()
    assert not log.producer_history.lacks_beginning and not log.history.lacks_remote_part
    log.close(clean=False)

    again = tiered(files, log_start_offset=LOG_START)
    assert again.log_start_offset == LOG_START
    assert again.local_log_start_offset == again.log_end_offset == LOCAL_START
    assert again.epochs.entries == list(EPOCHS)
    assert again.producers.encode_snapshot() == snapshot()
    append(again, batch(producer=Producer(77, 3, 6)), epoch=4)
    assert [offset for offset, _ in contents(again)] == [LOCAL_START]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"local_start_offset": 5}, "below log start"),
        ({"log_start_offset": -1}, "below log start"),
        ({"epochs": (EpochEntry(4, 25), EpochEntry(1, 10))}, "not in order"),
        ({"epochs": (EpochEntry(4, 25),)}, "no epoch covers log start 10"),
        ({"epochs": ()}, "no epoch covers log start 10"),
        ({"epochs": (*EPOCHS, EpochEntry(6, 40))}, "begins at or above"),
        ({"producers": b"no snapshot"}, "version 28271"),
    ],
)
async def test_a_beginning_that_contradicts_itself_touches_nothing(changed, said):
    log = tiered()
    fill(log, 3)
    with pytest.raises((ValueError, CorruptSnapshot), match=said):
        await log.begin_at(beginning(**changed), nothing_to_save)
    assert not log.bounds.bootstrapping
    assert [offset for offset, _ in contents(log)] == [0, 1, 2]


class CutAt:
    """A hook that cuts the power at the n-th file operation."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, kind: str, path: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise PowerCut(f"{kind} {path}")


@pytest.mark.parametrize("torn", [False, True])
async def test_s5_a_crash_anywhere_in_it_leaves_all_or_nothing(torn):
    """After a crash the log is as before, empty at its new beginning, or complete; nothing in
    between."""
    outcomes: set[str] = set()
    for cut in range(1, 200):
        backing = MemoryFiles()
        files = LossyFiles(backing)
        log = tiered(files)
        fill(log, 5, epoch=0, size=50)
        log.durability.flush_blocking()
        files.on_op = CutAt(cut)
        saved: list[int] = []

        async def save(log: Log = log, saved: list[int] = saved) -> None:
            saved.append(log.log_start_offset)

        done = False
        with suppress(PowerCut):
            done = await log.begin_at(beginning(), save)
        files.crash(random.Random(cut) if torn else None)
        again = tiered(backing, log_start_offset=saved[0] if saved else 0)
        outcomes.add(_told(again))
        assert not backing.exists(f"{DIRECTORY}/{MARKER}")
        assert again.high_watermark == again.local_log_start_offset
        if done:
            assert _told(again) == "whole" and outcomes == {"as before", "nothing", "whole"}
            return
    raise AssertionError("it never ended")


def _told(log: Log) -> str:
    """Return the outcome. Raises: AssertionError for a log neither as before nor empty nor
    complete."""
    if log.log_end_offset == 5:
        assert log.log_start_offset == log.local_log_start_offset == 0
        assert [offset for offset, _ in contents(log)] == [0, 1, 2, 3, 4]
        return "as before"
    if log.log_end_offset == 0:
        assert len(log.epochs) == 0 and not list(log.producers)
        return "nothing"
    assert log.local_log_start_offset == log.log_end_offset == LOCAL_START
    assert log.log_start_offset == LOG_START
    assert log.epochs.entries == list(EPOCHS)
    assert log.producers.encode_snapshot() == snapshot()
    return "whole"


async def test_begin_at_returns_false_if_the_log_is_deleted_during_the_save():
    log = tiered()

    async def save() -> None:
        log.close(clean=False)

    assert not await log.begin_at(beginning(), save)


async def test_a_disk_that_refuses_leaves_a_failed_log_with_its_marker():
    files = LossyFiles(MemoryFiles())
    log = tiered(files)

    async def save() -> None:
        raise OSError(5, "the checkpoint cannot be written")

    with pytest.raises(LogFailed):
        await log.begin_at(beginning(), save)
    assert log.bounds.bootstrapping and log.failure is not None
    assert files.exists(f"{DIRECTORY}/{MARKER}")


def test_a_log_without_an_unfinished_bootstrap_keeps_what_it_has():
    files = MemoryFiles()
    log = half_local(files)
    held = contents(log)
    log.close()
    assert contents(tiered(files, clean=True)) == held


def test_epochs_are_kept_from_where_a_crash_would_begin_again() -> None:
    """S4, S5: the checkpoint of log starts is written from time to time, the epochs with the next
    leader.

    A log that began below its first epoch could find no record in the store any more.
    """
    files = MemoryFiles()
    log = half_local(files)
    assert log.advance_log_start(5)
    assert log.epochs.entries[0] == EpochEntry(2, 0)
    log.history.write()
    after_crash = tiered(files)
    assert after_crash.log_start_offset == 0 < after_crash.local_log_start_offset
    assert not after_crash.history.lacks_remote_part
    log.trimming.saved(4)
    assert log.epochs.entries[0] == EpochEntry(5, 4)
    log.trimming.saved(9)
    assert log.epochs.entries[0] == EpochEntry(5, 5), "no more than what is gone"


def test_a_log_that_is_tiered_again_knows_the_epochs_from_where_a_crash_would_begin() -> None:
    """KIP-950: tiering is switched off and on before the checkpoint of log starts is written."""
    files = MemoryFiles()
    log = half_local(files)
    log.configure(replace(log.config, remote_storage_enable=False))
    assert log.log_start_offset == log.local_log_start_offset
    log.history.write()
    assert not tiered(files).history.lacks_remote_part
