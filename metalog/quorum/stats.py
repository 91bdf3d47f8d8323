"""Counters of one quorum replica.

As in Kafka, rates, averages and maxima are those of the last two windows of thirty seconds.

- Commit latency: from an append of the leader until the high watermark has passed it.
- Election latency: from the moment this replica stood for election until a leader was known. A sole
  voter is elected in the step in which it stands.
"""

from __future__ import annotations

from collections import deque

from metalog.quorum.core.roles import Role
from runtime.rates import WindowedRate

WINDOW_MS = 30_000.0
WINDOWS = 2
_ELECTION_ROLES = (Role.PROSPECTIVE, Role.CANDIDATE)


class WindowedTimes:
    """Average and maximum of durations in the current and the previous window."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        # (begin, count, sum, maximum), oldest first.
        self._windows: deque[tuple[float, int, float, float]] = deque(maxlen=WINDOWS)

    def add(self, duration_ms: float, now_ms: float) -> None:
        windows = self._windows
        if windows and now_ms - windows[-1][0] < WINDOW_MS:
            begin, count, total, most = windows.pop()
            windows.append((begin, count + 1, total + duration_ms, max(most, duration_ms)))
        else:
            windows.append((now_ms, 1, duration_ms, duration_ms))

    def average_and_max(self, now_ms: float) -> tuple[float, float]:
        """Return (average, maximum) of the recent durations; NaN without any, as in Kafka's
        sensors."""
        recent = [w for w in self._windows if now_ms - w[0] < WINDOWS * WINDOW_MS]
        count = sum(window[1] for window in recent)
        if not count:
            return float("nan"), float("nan")
        return sum(window[2] for window in recent) / count, max(window[3] for window in recent)


class QuorumStats:
    """Counters of a replica, updated whenever its state may have changed."""

    def __init__(self) -> None:
        self.appended = 0
        self.fetched = 0
        self.elections = 0
        self.commit_times = WindowedTimes()
        self.election_times = WindowedTimes()
        self.append_rate = WindowedRate(WINDOWS, WINDOW_MS)
        self.fetch_rate = WindowedRate(WINDOWS, WINDOW_MS)
        self._end_offset = -1
        # (end offset, time) of uncommitted appends.
        self._uncommitted: deque[tuple[int, float]] = deque()
        self._election_since_ms: float | None = None

    def observe(
        self, role: Role, end_offset: int, high_watermark: int | None, now_ms: float
    ) -> None:
        """Note the replica's role, log end and high watermark after an append or a step."""
        grown = end_offset - self._end_offset
        if self._end_offset >= 0 and grown > 0:
            if role is Role.LEADER:
                self.appended += grown
                self.append_rate.record(grown, now_ms)
                self._uncommitted.append((end_offset, now_ms))
            else:
                self.fetched += grown
                self.fetch_rate.record(grown, now_ms)
        self._end_offset = end_offset
        if role is not Role.LEADER:
            self._uncommitted.clear()
        elif high_watermark is not None:
            uncommitted = self._uncommitted
            while uncommitted and uncommitted[0][0] <= high_watermark:
                self.commit_times.add(now_ms - uncommitted.popleft()[1], now_ms)
        if role in _ELECTION_ROLES and self._election_since_ms is None:
            self._election_since_ms = now_ms

    def leader_known(self, is_self: bool, now_ms: float) -> None:
        """Note that a leader was elected, or found after this replica stood for election."""
        since_ms, self._election_since_ms = self._election_since_ms, None
        if since_ms is not None or is_self:
            self.elections += 1
            self.election_times.add(0.0 if since_ms is None else now_ms - since_ms, now_ms)
