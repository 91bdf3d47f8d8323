"""Partitions with news for a consumer's fetch session.

A consumer of thousands of partitions fetches while nothing happens to most of them. A partition
that it has read to the end, with all its state known, is not checked (`settled`) until the
partition reports a change (`touched`). A fetch checks the others, which are `due`.

If no fetch of the session waits, a partition notifies it once, and again only after a fetch has
checked it. A client that has gone for good leaves its session behind, which must not cost each
append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from broker.replication.partition.partition import Partition
    from broker.replication.subscriptions.subscriptions import WatchKey
    from broker.replication.waiting.waits import FetchWait


class SessionWatch:
    """News of one fetch session of a consumer; see `FollowerWatch` for those of followers."""

    __slots__ = ("_covered", "committed", "due", "over", "replica", "wait")

    def __init__(self, *, replica: bool = False, committed: bool = False) -> None:
        self.replica = replica
        # A dictionary as ordered set: the partitions to check, in turn.
        self.due: dict[WatchKey, None] = {}
        self.committed = committed
        """True if the newest fetch reads committed transactions alone."""
        self.wait: FetchWait | None = None
        """The fetch that waits now."""
        self.over = False
        """True if its session has ended; a fetch in progress may outlast it."""
        self._covered: dict[WatchKey, Partition] = {}

    def __len__(self) -> int:
        return len(self._covered)

    def cover(self, key: WatchKey, partition: Partition) -> None:
        """Subscribe to `partition` unless the session has ended."""
        known = self._covered.get(key)
        if known is not partition and not self.over:
            if known is not None:
                known.unwatch(self)
            self._covered[key] = partition
            partition.watch(self, key)

    def read_as(self, *, committed: bool) -> None:
        """Note the isolation level of the newest fetch."""
        for partition in self._covered.values():
            partition.unwatch(self)
        self.committed = committed
        for key, partition in self._covered.items():
            partition.watch(self, key)

    def requested(self, named: Iterable[WatchKey], forgotten: Collection[WatchKey]) -> None:
        """Note the session's next request, which names these partitions."""
        for key in named:
            self.due[key] = None
        for key in forgotten:
            self.forget(key)

    def turn(self) -> Iterable[WatchKey]:
        """Return the partitions to check now."""
        return self.due

    def settled(self, key: WatchKey) -> None:
        """Note that the reader has all there is: the partition is not checked again until it
        changes."""
        self.due.pop(key, None)

    def served(self, key: WatchKey) -> None:
        """Move a partition whose records were sent behind the others."""
        self.due.pop(key, None)
        self.due[key] = None

    def count_others(self) -> None:
        """Count a fetch for the covered partitions that need no check."""
        due = self.due
        for key, partition in self._covered.items():
            if key not in due:
                partition.counters.fetches += 1

    def forget(self, key: WatchKey) -> None:
        """Remove a partition from the session."""
        self.due.pop(key, None)
        self._uncover(key)

    def close(self) -> None:
        """Unsubscribe from all partitions at the end of the session."""
        self.over = True
        for partition in self._covered.values():
            partition.unwatch(self)
        self._covered.clear()
        self.due.clear()
        if self.wait is not None:
            # The waiting fetch would receive no more notifications: answer it, so that its client
            # opens a new session.
            self.wait.interrupt()

    def _uncover(self, key: WatchKey) -> None:
        partition = self._covered.pop(key, None)
        if partition is not None:
            partition.unwatch(self)

    # --- notifications by partitions (`Watch`) ------------------------------------------------

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        self.due[key] = None
        wait = self.wait
        if wait is None:
            self._uncover(key)
        else:
            wait.more_bytes(size_bytes)

    def interrupted(self, key: WatchKey) -> None:
        self.due[key] = None
        if self.wait is None:
            self._uncover(key)
        else:
            self.wait.interrupt()

    # --- the fetch that waits -----------------------------------------------------------------

    def add_fetch_wait(self, wait: FetchWait) -> None:
        self.wait = wait
        wait.place = self

    def remove_fetch_wait(self, wait: FetchWait) -> None:
        if self.wait is wait:
            self.wait = None


class LoneWatch(SessionWatch):
    """Subscriptions of a fetch without a session, for as long as it waits."""

    __slots__ = ()

    def remove_fetch_wait(self, wait: FetchWait) -> None:
        super().remove_fetch_wait(wait)
        self.close()
