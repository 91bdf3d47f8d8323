"""Deadlines of one shard, optimised for deadlines that move far more often than they are reached.

A heartbeat moves its member's session deadline and nothing else. The heap keeps the older, earlier
entry; when its time comes, it is put back with the deadline then in force. So a heartbeat costs one
dictionary store. The heap holds at most one live entry per key, plus one for each time a deadline
moved *earlier*.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final, NamedTuple

from broker.coordinators.group.states import GroupState

AGAIN_MS_MIN: Final = 1
"""The shortest timer that may be set while another one is served."""


class TimerKind(IntEnum):
    """The event at a deadline."""

    SESSION = 0
    """A member has sent no request for its session timeout (or joined too long ago)."""
    PENDING_MEMBER = 1
    """A member id was given out with MEMBER_ID_REQUIRED and not used."""
    JOIN = 2
    """The join phase of a rebalance is over."""
    SYNC = 3
    """The time for members that joined to send SyncGroup is over."""


TIMER_STATES: Final[dict[TimerKind, frozenset[GroupState]]] = {
    TimerKind.SESSION: frozenset(GroupState) - {GroupState.EMPTY, GroupState.DEAD},
    TimerKind.PENDING_MEMBER: frozenset(GroupState) - {GroupState.DEAD},
    TimerKind.JOIN: frozenset({GroupState.PREPARING_REBALANCE}),
    # Members may be late with SyncGroup after the leader's assignment, too.
    TimerKind.SYNC: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
}
"""The states of its group in which a timer may fire. A group that enters another state cancels the
timer: it would end a phase that did not set it."""


class TimerKey(NamedTuple):
    """Key of a timer. `incarnation` identifies the group object that set it: a removed group and a
    later one of the same name share no timer."""

    kind: TimerKind
    group_id: str
    incarnation: int
    member_id: str


class Timers:
    """A set of (key, deadline in monotonic milliseconds)."""

    __slots__ = ("_deadlines_ms", "_earliest_ms", "_heap", "_queued_ms")

    def __init__(self) -> None:
        self._deadlines_ms: dict[TimerKey, float] = {}
        self._queued_ms: dict[TimerKey, float] = {}
        self._heap: list[tuple[float, TimerKey]] = []
        self._earliest_ms = float("-inf")

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines_ms

    def set(self, key: TimerKey, deadline_ms: float) -> None:
        """Start or move the timer of `key`."""
        deadline_ms = max(deadline_ms, self._earliest_ms)
        self._deadlines_ms[key] = deadline_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or deadline_ms < queued_ms:
            self._queued_ms[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: TimerKey) -> None:
        """Stop the timer of `key`, if there is one."""
        self._deadlines_ms.pop(key, None)

    def next_deadline_ms(self) -> float | None:
        """Return when to call `pop_due`, which may still find nothing, as entries are moved
        lazily."""
        return self._heap[0][0] if self._heap else None

    @contextmanager
    def serving(self, now_ms: float) -> Iterator[None]:
        """Make timers that are set while one is served due later than `now_ms`.

        Delays come from clients and may be 0. A caller that serves timers until no more are due at
        `now_ms` must come to an end.
        """
        self._earliest_ms = now_ms + AGAIN_MS_MIN
        try:
            yield
        finally:
            self._earliest_ms = float("-inf")

    def pop_due(self, now_ms: float) -> TimerKey | None:
        """Remove and return one timer that is due, earliest first; None without any."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, key = heapq.heappop(self._heap)
            if self._queued_ms.get(key) != queued_ms:
                continue  # An earlier entry of this key has been queued and served since.
            del self._queued_ms[key]
            deadline_ms = self._deadlines_ms.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self.set(key, deadline_ms)
                continue
            del self._deadlines_ms[key]
            return key
        return None
