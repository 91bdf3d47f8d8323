"""A follower's patience: how long it waits for its leader, and before it repeats a failed fetch."""

from __future__ import annotations

from metalog.quorum.core.replica import Replica
from metalog.quorum.core.roles import Role

LOST_LEADER_TIMEOUT_MS = 250.0
"""First fetch timeout of a non-voter for a leader that it has just lost and found again.

The nodes that it queried may not have noticed the loss yet. The timeout doubles each time, up to
the usual fetch timeout.
"""


class Patience:
    """The patience of a replica that follows or looks for a leader."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._lost: tuple[int, int] | None = None
        """The leader that timed out, and its epoch."""
        self._lost_times = 0
        self._not_stored = 0
        """Consecutive snapshots that this node's disk did not store."""
        self._refusals = 0
        """Consecutive leaders whose port refused before they answered a fetch."""

    def fetch_timeout_ms(self) -> float:
        """Return the timeout for a leader's answer, with jitter.

        A leader answers all its followers at once. Without jitter they would also start elections
        at once.
        """
        timeout_ms = self._replica.timing.fetch_timeout_ms
        return timeout_ms + self._replica.jitter(max(1, timeout_ms // 8))

    def first_timeout_ms(self, role: Role, leader_id: int) -> float:
        """Return the timeout for the first answer of a leader that this replica begins to follow:
        shorter for a non-voter and a leader that it has just lost."""
        timeout_ms = self.fetch_timeout_ms()
        if self._lost != (leader_id, self._replica.epoch):
            self._lost = None
        elif role is Role.OBSERVER:
            timeout_ms = min(timeout_ms, LOST_LEADER_TIMEOUT_MS * 2.0**self._lost_times)
        return timeout_ms

    @property
    def has_lost_leader(self) -> bool:
        """True if the present leader was lost before and has not answered since. It is not left to
        hold a fetch back."""
        return self._lost is not None

    def leader_lost(self, leader_id: int) -> None:
        """Note that a leader has not answered in time."""
        lost = (leader_id, self._replica.epoch)
        self._lost_times = min(self._lost_times + 1, 10) if lost == self._lost else 0
        self._lost = lost

    def forget_lost_leader(self) -> None:
        self._lost = None

    def leader_answered(self) -> None:
        """Note the answer of the leader to a fetch."""
        self._lost, self._refusals = None, 0

    def refused_wait_ms(self) -> float:
        """Return how long to wait before a pre-vote because the leader's port refused: twice as
        long after each leader in a row that refused."""
        replica = self._replica
        first_ms = replica.timing.retry_backoff_ms
        times, self._refusals = self._refusals, min(self._refusals + 1, 10)
        bound_ms = min(first_ms << times, replica.timing.fetch_timeout_ms)
        # The first time, all followers have just lost the leader; the first candidate finds the
        # others ready to vote.
        return bound_ms - first_ms + replica.jitter(max(1, bound_ms))

    def disk_pause_ms(self) -> float:
        """Return the backoff after the disk refused a snapshot.

        A full disk is not tried every 20 ms. But the backoff stays short enough that this replica
        does not mistake its leader for lost.
        """
        timing = self._replica.timing
        pause_ms = timing.retry_backoff_ms * 2.0 ** min(self._not_stored, 20)
        self._not_stored += 1
        return min(pause_ms, timing.fetch_timeout_ms / 2.0)

    def snapshot_stored(self) -> None:
        """Note that the disk stores snapshots again."""
        self._not_stored = 0
