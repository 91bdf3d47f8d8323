"""Pace of the requests to a leader: backoff after failures, probes while its metadata is behind.

After thousands of elections a follower may learn of them before a leader, which has more to do. If
a leader refuses because its metadata is behind, the next request names a few partitions, then about
twice as many after each success. Each refusal costs the leader time that it needs to catch up.
"""

from __future__ import annotations

from typing import Final

NAMED_MAX: Final = 500
"""Maximum number of partitions that one request names: both sides spend only milliseconds on it."""
BACK_OFF_FIRST_MS: Final = 10.0
BEHIND_FIRST_MS: Final = 2.0
"""First backoff for a leader that is behind. It has its image a few milliseconds later, and until
this follower fetches again, new records there are not committed. So each wait is at most as long as
all waits before it."""
PROBED_MIN: Final = 10
"""Partitions in a request that checks whether a leader is still behind."""
PROBE_PAUSE_MAX_MS: Final = 40.0
FAILURES_MAX: Final = 16


class LeaderPace:
    """Times and sizes of the requests to one leader."""

    __slots__ = (
        "_backoff_max_ms", "_failures", "_probe_pause_ms", "_probed_max", "pause_until_ms",
        "probe_at_ms",
    )  # fmt: skip

    def __init__(self, backoff_max_ms: float) -> None:
        """Start without failures. `backoff_max_ms` limits the backoff after failures."""
        self._backoff_max_ms = backoff_max_ms
        self._failures = 0
        self.pause_until_ms = 0.0
        """No request before this time."""
        self._probed_max = NAMED_MAX
        self.probe_at_ms: float | None = None
        """While the leader is behind: no such partition in a request before this time."""
        self._probe_pause_ms = BEHIND_FIRST_MS

    @property
    def unserved_max(self) -> int:
        """Limit of partitions in the next request that the leader has not served yet."""
        return self._probed_max if self.probe_at_ms is None else 0

    def failed(self, now_ms: float) -> None:
        """Begin a backoff: a request failed as a whole, or there is no connection."""
        self._failures = min(self._failures + 1, FAILURES_MAX)
        pause_ms = BACK_OFF_FIRST_MS * 2.0 ** (self._failures - 1)
        self.pause_until_ms = now_ms + min(pause_ms, self._backoff_max_ms)

    def answered(self) -> None:
        """Forget the failures: the leader has served a request."""
        self._failures = 0

    def try_once(self) -> None:
        """Skip the backoff before the first reconnect."""
        if self._failures == 1:
            self.pause_until_ms = 0.0

    def hurry(self) -> None:
        """Skip all backoffs: the leader may be reachable again."""
        self.pause_until_ms = 0.0
        self.probe_at_ms = None

    def end_probe_pause(self, now_ms: float) -> bool:
        """End the pause of probes if it is over. Returns: whether it has ended now."""
        if self.probe_at_ms is None or self.probe_at_ms > now_ms:
            return False
        self.probe_at_ms = None
        return True

    def learn(self, now_ms: float, *, served: bool, behind: bool) -> None:
        """Adapt number and time of unserved partitions in the next requests to the leader.

        Args:
            served: the newest answer serves a partition for the first time in its leader epoch.
            behind: the newest answer refuses one because the leader's metadata is behind.
        """
        if served:
            self._probed_max = min(2 * self._probed_max, NAMED_MAX)
            # A leader that serves some partitions has more work left than one that serves none yet.
            self._probe_pause_ms = BACK_OFF_FIRST_MS if behind else BEHIND_FIRST_MS
        if behind:
            self._probed_max = PROBED_MIN
            self.probe_at_ms = now_ms + self._probe_pause_ms
            self._probe_pause_ms = min(2 * self._probe_pause_ms, PROBE_PAUSE_MAX_MS)
