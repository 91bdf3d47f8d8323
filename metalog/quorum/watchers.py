"""Callbacks for changes of a quorum replica, called at once, in the order of registration."""

from __future__ import annotations

from collections.abc import Callable


class Watchers:
    """The callbacks of one replica."""

    def __init__(self) -> None:
        # A dictionary as an ordered set.
        self._of_log: dict[Callable[[], None], None] = {}
        self._of_leader: list[Callable[[], None]] = []
        self._of_voters: list[Callable[[int], None]] = []

    @property
    def log_count(self) -> int:
        """Number of callbacks for changes of the log."""
        return len(self._of_log)

    def watch_log(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever the log grows, commits, or changes leader. Returns: a function to undo
        it."""
        self._of_log[callback] = None
        return lambda: self._of_log.pop(callback, None)

    def watch_leader(self, callback: Callable[[], None]) -> None:
        """Call back whenever `QuorumNode.leader` changes, as long as the replica runs."""
        self._of_leader.append(callback)

    def watch_gone(self, callback: Callable[[int], None]) -> None:
        """Call back with the id of a voter whose port refuses this leader's BeginQuorumEpoch.

        The call is repeated with each retry.
        """
        self._of_voters.append(callback)

    def log_changed(self) -> None:
        for callback in tuple(self._of_log):
            callback()

    def leader_changed(self) -> None:
        for callback in self._of_leader:
            callback()

    def voter_gone(self, voter_id: int) -> None:
        for callback in self._of_voters:
            callback(voter_id)
