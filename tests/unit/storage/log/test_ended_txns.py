"""Transactions that ended above the high watermark stay unstable (T5)."""

from __future__ import annotations

import random

import pytest

from protocol.batch.control import build_end_txn_marker
from protocol.batch.records import Producer
from protocol.ids import TopicId
from runtime.clock import ManualClock
from storage.files import MemoryFiles
from storage.log.config import LogConfig
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.producers import Origin
from testkit.memory.logs import DIRECTORY, T0, append, batch, make_log

CONFIG = LogConfig()


def begin_txn(log: Log, producer_id: int, sequence: int = 0) -> int:
    data = batch(producer=Producer(producer_id, 0, sequence, transactional=True))
    return append(log, data).first_offset


def end_txn(log: Log, producer_id: int, *, commit: bool = True) -> int:
    data = build_end_txn_marker(producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=T0)
    return append(log, data, origin=Origin.COORDINATOR).first_offset


def filled(log: Log) -> Log:
    """Append a plain batch at 0, and transactions at 1 and 2, which end at 3 and 4. A producer
    snapshot at 5 follows."""
    append(log, batch())
    begin_txn(log, 1)
    begin_txn(log, 2)
    end_txn(log, 1, commit=False)
    end_txn(log, 2)
    log.roll()
    append(log, batch(2))
    return log


def stable_offsets(log: Log) -> list[int]:
    """Return the last stable offset at each high watermark from the present one on."""
    found = []
    for offset in range(log.high_watermark, log.log_end_offset + 1):
        log.update_high_watermark(offset)
        found.append(log.last_stable_offset)
    return found


@pytest.mark.parametrize("high_watermark", [2, 3, 4])
def test_truncation_keeps_unreplicated_ends_of_transactions_unstable(high_watermark: int) -> None:
    """T5: the snapshot at 5 does not contain the transactions that ended before it."""
    log = filled(make_log())
    log.update_high_watermark(high_watermark)
    before = log.last_stable_offset
    log.truncate_to(5)
    assert log.last_stable_offset == before
    assert stable_offsets(log) == [1, 1, 2, 5][high_watermark - 2 :]


def test_truncation_below_a_marker_opens_its_transaction() -> None:
    log = filled(make_log())
    log.update_high_watermark(2)
    log.truncate_to(4)
    assert stable_offsets(log) == [1, 1, 2]
    assert log.producers.unstable.first_open_offset == 2
    log.truncate_to(3)
    assert log.producers.unstable.first_open_offset == 1
    end_txn(log, 2)
    end_txn(log, 1)
    assert log.producers.unstable.first_open_offset is None
    assert stable_offsets(log) == [1, 1, 5]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", ["all", "newest", "none"])
@pytest.mark.parametrize("high_watermark", [0, 2, 3, 4, 5, 7])
async def test_restart_keeps_unreplicated_ends_of_transactions_unstable(
    clean: bool, snapshots: str, high_watermark: int
) -> None:
    """T5: a clean close writes a snapshot at the log end, and the high watermark is lower."""
    files = MemoryFiles()
    files.mkdirs("/data")

    def start() -> LogManager:
        manager = LogManager(
            files, "/data", clock=ManualClock(T0), rng=random.Random(1),
            config_for=lambda topic: CONFIG,
        )  # fmt: skip
        manager.load()
        return manager

    manager = start()
    log = filled(manager.get_or_create("topic", 0, TopicId(b"\x01" * 16), CONFIG))
    log.update_high_watermark(high_watermark)
    await manager.close()
    if not clean:
        files.unlink("/data/.kafka_cleanshutdown")
    names = sorted(name for name in files.listdir(DIRECTORY) if name.endswith(".snapshot"))
    assert [int(name[:20]) for name in names] == [5, 7]
    for name in {"all": [], "newest": names[:-1], "none": names}[snapshots]:
        files.unlink(f"{DIRECTORY}/{name}")
    again = start().logs[("topic", 0)]
    assert again.high_watermark == high_watermark
    expected = [0, 1, 1, 1, 2, 5, 6, 7]
    assert stable_offsets(again) == expected[high_watermark:]


async def test_restart_with_a_damaged_batch_above_the_high_watermark_reports_it() -> None:
    """A clean start trusts its files: damage there must not stop the broker."""
    files = MemoryFiles()
    log = filled(make_log(files))
    log.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    files.open(path).pwrite(b"\x07", 16)
    again = make_log(files, clean=True)
    again.producer_history.recall_ended(list(again.segments))
    (problem,) = again.recovery_report.problems
    assert problem.startswith("transactions above the high watermark: ")


def test_restart_without_transactions_reads_no_batches() -> None:
    files = MemoryFiles()
    log = make_log(files)
    append(log, batch(producer=Producer(1, 0, 0)))
    log.roll()
    append(log, batch())
    log.close()
    again = make_log(files, clean=True)
    files.unlink(f"{DIRECTORY}/{0:020d}.log")
    again.producer_history.recall_ended(list(again.segments))
    assert again.producers.first_unstable_offset is None
