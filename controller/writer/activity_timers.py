"""Shell: Timers of a controller's activities, one each, for the time at which it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from controller.writer.activities import Activities, Activity
from runtime.clock import Clock

REFUSED_PAUSE_MS: Final = 100.0
"""Retry backoff of activities after a refused append."""


class _Timer(NamedTuple):
    due_ms: float
    handle: asyncio.TimerHandle


class ActivityTimers:
    """The timers of one controller.

    Args:
        act: runs one step of an activity that is due.
    """

    def __init__(
        self, activities: Activities, clock: Clock, act: Callable[[Activity], None]
    ) -> None:
        self._activities = activities
        self._clock = clock
        self._act = act
        self._timers: dict[Activity, _Timer] = {}
        self._refused_until_ms = 0.0

    def arm(self) -> None:
        """Set a timer for each activity, for the time at which it is due."""
        for activity in self._activities:
            timer = self._timers.get(activity)
            if timer is not None:
                if timer.due_ms == activity.due_ms:
                    continue
                timer.handle.cancel()
                del self._timers[activity]
            if activity.due_ms is not None:
                due_ms = max(activity.due_ms, self._refused_until_ms)
                wait_ms = max(due_ms - self._clock.monotonic_ms(), 0.0)
                loop = asyncio.get_running_loop()
                handle = loop.call_at(loop.time() + wait_ms / 1000.0, self._due, activity)
                self._timers[activity] = _Timer(activity.due_ms, handle)

    def _due(self, activity: Activity) -> None:
        del self._timers[activity]
        self._act(activity)
        self.arm()

    def back_off(self) -> None:
        """Note a refused append: no activity runs before the backoff has passed."""
        self._refused_until_ms = self._clock.monotonic_ms() + REFUSED_PAUSE_MS
