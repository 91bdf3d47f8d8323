"""Timeouts of unclean recovery (KIP-966): one per partition and strategy, each ends once."""

from __future__ import annotations

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.recovery_timers import Timers

KEY = (b"t" * 16, 0)
BALANCED, AGGRESSIVE = RecoveryStrategy.BALANCED, RecoveryStrategy.AGGRESSIVE


def test_timer_of_a_dropped_strategy_ends_no_more() -> None:
    """A strategy that no longer waits causes no examination, and no timer is armed for it."""
    timers = Timers()
    timers.set_timeout(100.0)
    timers.keep(KEY, [BALANCED, AGGRESSIVE], 0.0)
    timers.keep(KEY, [AGGRESSIVE], 10.0)
    assert timers.take_ended(100.0) == [KEY]
    timers.keep(KEY, [], 110.0)
    timers.keep(KEY, [BALANCED], 150.0)
    timers.keep(KEY, [], 160.0)
    assert timers.due_ms() is None


def test_changed_timeout_orders_all_timers_by_their_begin() -> None:
    """A partition whose strategy was added later does not hold back the one that ends first."""
    timers, other = Timers(), (b"u" * 16, 0)
    timers.set_timeout(100.0)
    timers.keep(KEY, [BALANCED], 0.0)
    timers.keep(other, [BALANCED], 20.0)
    timers.keep(KEY, [BALANCED, AGGRESSIVE], 50.0)
    timers.set_timeout(60.0)
    assert timers.take_ended(80.0) == [KEY, other]
    assert timers.due_ms() == 110.0
