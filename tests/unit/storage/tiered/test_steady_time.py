"""Time for retention (F23): a clock jump alone makes no segment expire."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.tiered.steady_time import SteadyTime

HOUR_MS = 3_600_000


def test_a_jump_forward_is_believed_after_an_hour() -> None:
    time = SteadyTime()
    assert time.now_ms(1_000_000, 0.0) == 1_000_000
    jumped = 1_000_000 + 24 * HOUR_MS
    for minute in range(60):
        at_ms = minute * 60_000
        assert time.now_ms(jumped + at_ms, at_ms) == 1_000_000 + at_ms
        assert time.doubtful is True
    time.now_ms(jumped + HOUR_MS, HOUR_MS)
    assert time.now_ms(jumped + HOUR_MS + 1, HOUR_MS + 1.0) == jumped + HOUR_MS + 1
    assert not time.doubtful


def test_a_jump_back_is_believed_at_once() -> None:
    time = SteadyTime()
    time.now_ms(24 * HOUR_MS, 0.0)
    assert time.now_ms(HOUR_MS, 1000.0) == HOUR_MS
    assert time.now_ms(24 * HOUR_MS, 2000.0) == HOUR_MS + 1000


def test_a_clock_that_is_slewed_is_followed() -> None:
    time = SteadyTime()
    for second in range(1000):
        assert time.now_ms(second * 1010, second * 1000.0) == second * 1010


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(-HOUR_MS, HOUR_MS)), max_size=60))
def test_a_clock_that_is_strobed_gains_less_than_a_jump(steps: list[tuple[int, int]]) -> None:
    """Jumps to and fro around the right time are not trusted within an hour."""
    time = SteadyTime()
    monotonic_ms = 0
    time.now_ms(0, 0.0)
    for passed_ms, off_ms in steps:
        monotonic_ms += passed_ms
        allowed = monotonic_ms + HOUR_MS // 2
        off_ms = off_ms if off_ms > HOUR_MS // 2 else 0
        assert time.now_ms(monotonic_ms + off_ms, float(monotonic_ms)) <= allowed
