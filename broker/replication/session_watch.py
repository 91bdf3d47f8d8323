"""Partitions with news for a consumer's fetch session.

A consumer of thousands of partitions fetches while nothing happens to most of them. One that it has
read to the end, and knows all facts of, is left alone (`settled`) until the partition says that
something has happened (`touched`); a fetch looks at the others, which are `due`.

A session that does not wait is told once by a partition, and again when it has looked: a client
that has gone for good leaves its session behind, which must not cost each append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from broker.replication.audience import WatchKey
    from broker.replication.partition import Partition
    from broker.replication.waits import FetchWait


class SessionWatch:
    """One per fetch session of a consumer; see `FollowerWatch` for those of followers."""

    __slots__ = ("_covered", "committed", "due", "over", "replica", "wait")

    def __init__(self, *, replica: bool = False) -> None:
        self.replica = replica
        # A dictionary as ordered set: whom to look at, in turn.
        self.due: dict[WatchKey, None] = {}
        self.committed = False
        """Whether the newest fetch reads committed transactions alone."""
        self.wait: FetchWait | None = None
        """The fetch that waits now."""
        self.over = False
        """Whether its session has ended, which a fetch that is under way outlives."""
        self._covered: dict[WatchKey, Partition] = {}

    def __len__(self) -> int:
        return len(self._covered)

    def cover(self, key: WatchKey, partition: Partition) -> None:
        """Hears from `partition` from now on."""
        known = self._covered.get(key)
        if known is not partition and not self.over:
            if known is not None:
                known.unwatch(self)
            self._covered[key] = partition
            partition.watch(self, key)

    def requested(self, named: Iterable[WatchKey], forgotten: Collection[WatchKey]) -> None:
        """The session's next request has come, which names these."""
        for key in named:
            self.due[key] = None
        for key in forgotten:
            self.forget(key)

    def turn(self) -> Iterable[WatchKey]:
        """Whom to look at now."""
        return self.due

    def settled(self, key: WatchKey) -> None:
        """The reader has been told all there is; nothing is looked at until something happens."""
        self.due.pop(key, None)

    def served(self, key: WatchKey) -> None:
        """Records were sent: others get their turn first."""
        self.due.pop(key, None)
        self.due[key] = None

    def count_others(self) -> None:
        """Those that a fetch need not look at are fetched as well."""
        due = self.due
        for key, partition in self._covered.items():
            if key not in due:
                partition.counters.fetches += 1

    def forget(self, key: WatchKey) -> None:
        """The partition has left the session."""
        self.due.pop(key, None)
        self._uncover(key)

    def close(self) -> None:
        """The session is over."""
        self.over = True
        for partition in self._covered.values():
            partition.unwatch(self)
        self._covered.clear()
        self.due.clear()
        if self.wait is not None:
            # It would hear of nothing any more; its client is to ask again, and begin anew.
            self.wait.interrupt()

    def _uncover(self, key: WatchKey) -> None:
        partition = self._covered.pop(key, None)
        if partition is not None:
            partition.unwatch(self)

    # --- what partitions tell (`Watch`) -------------------------------------------------------

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
    """Of a fetch without a session, for as long as it waits."""

    __slots__ = ()

    def remove_fetch_wait(self, wait: FetchWait) -> None:
        super().remove_fetch_wait(wait)
        self.close()
