"""The bounds of a log."""

from __future__ import annotations

import pytest

from storage.log.bounds import LogBounds


def bounds() -> LogBounds:
    """Return bounds of a log whose first 10 offsets only the remote store has."""
    made = LogBounds(5, 10, 30)
    made.high_watermark, made.recovery_point, made.copied_to = 25, 28, 20
    return made


@pytest.mark.parametrize(
    ("end", "expected"), [(30, (25, 28, 20)), (27, (25, 27, 20)), (12, (12, 12, 12))]
)
def test_bounds_after_a_truncation_are_not_above_the_end(
    end: int, expected: tuple[int, int, int]
) -> None:
    made = bounds()
    made.end_at(end)
    assert made.log_end_offset == end
    assert (made.high_watermark, made.recovery_point, made.copied_to) == expected


@pytest.mark.parametrize(("offset", "limited"), [(0, 10), (9, 10), (10, 10), (30, 30), (31, 30)])
def test_bounds_limit_the_high_watermark_to_the_local_log(offset: int, limited: int) -> None:
    """S1: records that only the remote store has were committed before they were copied."""
    assert bounds().limit_high_watermark(offset) == limited


def test_bounds_checkpoint_no_high_watermark_above_an_unflushed_cut() -> None:
    """P4: a power cut may restore the truncated records until the next flush."""
    made = bounds()
    made.note_cut(15)
    made.note_cut(22)
    assert made.durable_high_watermark == 15
    made.flushed_to(29)
    assert (made.durable_high_watermark, made.recovery_point) == (25, 29)
    made.note_cut(22)
    assert made.durable_high_watermark == 22


def test_bounds_owe_a_log_start_only_if_a_tiered_log_has_not_saved_it() -> None:
    """S4: a crash could otherwise lower the log start to records that no longer exist."""
    made = bounds()
    assert not made.owes_log_start
    made.was_tiered = True
    assert made.owes_log_start
    made.saved_log_start = 5
    assert not made.owes_log_start
