"""Partitions with news for a follower's fetch session.

A follower of thousands of partitions fetches twice a second while nothing happens. Looking at each
of them each time would cost a leader more than all its producers. So each partition of the session
tells the session when there is something to read or to know (`touched`), and a fetch looks at those
partitions alone. All others the follower has read to the end, and goes on having read: the time of
the session's newest fetch is theirs (`fetch_ms`, see `RemoteReplica.resting`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replication.remote_replica import NEVER_MS

if TYPE_CHECKING:
    from broker.replication.waits import FetchWait
    from broker.replication.watched import Watched, WatchKey


class FollowerWatch:
    """One per fetch session of a follower."""

    __slots__ = ("_covered", "broker_epoch", "due", "fetch_ms", "replica_id", "wait")

    def __init__(self) -> None:
        # A dictionary as an ordered set: whom to look at, in turn.
        self.due: dict[WatchKey, None] = {}
        self.fetch_ms = NEVER_MS
        self.replica_id = -1
        self.broker_epoch = -1
        self.wait: FetchWait | None = None
        """The fetch that waits now."""
        self._covered: dict[WatchKey, Watched] = {}

    def __len__(self) -> int:
        return len(self._covered)

    def is_of_earlier_life(self, replica_id: int, broker_epoch: int) -> bool:
        return self.replica_id == replica_id and self.broker_epoch < broker_epoch

    def cover(self, key: WatchKey, partition: Watched) -> None:
        """Hears from `partition` from now on."""
        known = self._covered.get(key)
        if known is not partition:
            if known is not None:
                known.unwatch(self)
            self._covered[key] = partition
            partition.watch(self, key)

    def settled(self, key: WatchKey) -> None:
        """The follower has been told all there is; nothing is looked at until something happens."""
        self.due.pop(key, None)

    def served(self, key: WatchKey) -> None:
        """Records were sent: others get their turn first."""
        self.due.pop(key, None)
        self.due[key] = None

    def forget(self, key: WatchKey) -> None:
        """The partition has left the session."""
        self.due.pop(key, None)
        partition = self._covered.pop(key, None)
        if partition is not None:
            partition.unwatch(self)

    def close(self) -> None:
        """The session is over."""
        for partition in self._covered.values():
            partition.unwatch(self)
        self._covered.clear()
        self.due.clear()
        if self.wait is not None:
            # It would hear of nothing any more; its follower is to ask again, and begin anew.
            self.wait.interrupt()

    # --- what partitions tell (`Watch`) -------------------------------------------------------

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        self.due[key] = None
        wait = self.wait
        if wait is not None:
            if size_bytes:
                wait.more_bytes(size_bytes)
            else:
                wait.touched = True

    def interrupted(self, key: WatchKey) -> None:
        self.due[key] = None
        if self.wait is not None:
            self.wait.interrupt()

    # --- the fetch that waits (as partitions have it) -----------------------------------------

    def add_fetch_wait(self, wait: FetchWait) -> None:
        self.wait = wait
        wait.places.append(self)

    def remove_fetch_wait(self, wait: FetchWait) -> None:
        if self.wait is wait:
            self.wait = None
