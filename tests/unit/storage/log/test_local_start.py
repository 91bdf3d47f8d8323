"""Time of the first batch that a log has locally, and the size of its segments (KIP-1303)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.batch.records import Record, build_batch
from storage.log.errors import LogFailed
from storage.log.log import Log
from storage.log.segment import Segment
from testkit.memory.logs import append, make_log

T0 = 1_790_000_000_000


def at(*times_ms: int) -> bytes:
    return build_batch([Record(n, time_ms, None, b"v") for n, time_ms in enumerate(times_ms)])


def filled(*times_ms: int) -> Log:
    """Return a log with a batch of one record per time, each in a segment of its own."""
    log = make_log()
    for time_ms in times_ms:
        append(log, at(time_ms))
        log.roll()
    log.update_high_watermark(log.log_end_offset)
    return log


def summed(log: Log) -> int:
    return sum(segment.size_bytes for segment in log.segments)


def test_local_start_ms_is_the_time_of_the_first_record() -> None:
    """An entry of the time index would be the highest time so far."""
    log = make_log()
    assert log.reader.local_start_ms() == -1
    append(log, at(T0 + 5, T0 + 900, T0))
    assert log.reader.local_start_ms() == T0 + 5
    append(log, at(T0 - 100))
    assert log.reader.local_start_ms() == T0 + 5


def test_local_start_ms_follows_the_local_start() -> None:
    log = filled(T0, T0 - 7, T0 + 9)
    assert log.reader.local_start_ms() == T0
    log.trimming.delete_oldest(1)
    assert log.reader.local_start_ms() == T0 - 7
    log.trimming.delete_oldest(1)
    assert log.reader.local_start_ms() == T0 + 9


def test_a_start_inside_a_segment_is_the_batch_that_holds_it() -> None:
    log = make_log()
    for n in range(5):
        append(log, at(T0 + 10 * n, T0 + 10 * n + 1))
    log.update_high_watermark(10)
    for offset, time_ms in ((3, 10), (4, 20), (9, 40)):
        log.advance_log_start(offset)
        assert log.reader.local_start_ms() == T0 + time_ms
    log.advance_log_start(10)
    assert log.reader.local_start_ms() == -1, "no batch is left"


def test_local_start_ms_is_reset_by_truncation() -> None:
    log = make_log()
    append(log, at(T0))
    assert log.reader.local_start_ms() == T0
    log.truncate_to(0)
    assert log.reader.local_start_ms() == -1
    append(log, at(T0 + 77))
    assert log.reader.local_start_ms() == T0 + 77
    log.truncate_fully_and_start_at(40)
    assert log.reader.local_start_ms() == -1


def test_records_without_a_time_have_none() -> None:
    log = make_log()
    append(log, at(-1))
    assert log.reader.local_start_ms() == -1
    assert log.size_bytes > 0


def test_local_start_ms_is_read_from_disk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start is cached, because every fetch reads it."""
    log = filled(T0, T0 + 1)
    looked = []
    first_header = Segment.first_header

    def counting(segment: Segment) -> Any:
        looked.append(segment.base_offset)
        return first_header(segment)

    monkeypatch.setattr(Segment, "first_header", counting)
    assert {log.reader.local_start_ms() for _ in range(50)} == {T0}
    assert looked == [0]


def test_local_start_ms_read_error_fails_the_reader_but_not_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled(T0)

    def refuse(_: Segment) -> Any:
        raise OSError(5, "no")

    monkeypatch.setattr(Segment, "first_header", refuse)
    with pytest.raises(LogFailed):
        log.reader.local_start_ms()
    assert log.failure is None


def test_the_size_is_the_sum_whatever_happens_to_segments() -> None:
    log = filled(*range(T0, T0 + 6))
    assert log.size_bytes == summed(log) > 0
    steps = (
        lambda: append(log, at(T0, T0)),
        lambda: log.trimming.delete_oldest(2),
        lambda: append(log, at(T0)),
        log.roll,
        lambda: log.truncate_to(5),
        lambda: append(log, at(T0)),
        lambda: log.truncate_to(3),
        lambda: log.truncate_fully_and_start_at(100),
        lambda: append(log, at(T0)),
    )
    for step in steps:
        step()
        assert log.size_bytes == summed(log)
        assert log.size_bytes == summed(log)
