"""Partitions with news for a follower's fetch session.

A follower of thousands of partitions fetches twice a second while nothing happens. Looking at each
of them each time would cost a leader more than all its producers. So each partition of the session
tells the session when there is something to read or to know (`touched`), and a fetch looks at those
partitions alone. All others the follower has read to the end, and goes on having read: the time of
the session's newest fetch is theirs (`fetch_ms`, see `RemoteReplica.resting`).

A leader of thousands of new partitions has news of all of them at once. One fetch looks at what it
names and at some of the others, and is answered at once while more are due: the next one goes on.
What there is nothing to tell of and is not settled either, as while the follower may not join the
ISR, is looked at again in rounds: a fetch only waits at the end of one.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.replication.remote_replica import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.replication.waits import FetchWait
    from broker.replication.watched import Watched, WatchKey


LOOKED_AT_MAX: Final = 500
"""Partitions that one fetch looks at beside those that it names: a few milliseconds."""
AGAIN_MIN: Final = 100
"""So many of those that are looked at again have their turn, however much is due."""


class FollowerWatch:
    """One per fetch session of a follower."""

    __slots__ = (
        "_covered",
        "_left",
        "_named",
        "_seen",
        "broker_epoch",
        "due",
        "fetch_ms",
        "replica_id",
        "wait",
    )

    def __init__(self) -> None:
        # Dictionaries as ordered sets: whom to look at, in turn; whom the newest request names; who
        # was looked at and is not settled, and how many of those this round has yet to come to.
        self.due: dict[WatchKey, None] = {}
        self._named: dict[WatchKey, None] = {}
        self._seen: dict[WatchKey, None] = {}
        self._left = 0
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

    def requested(self, named: Iterable[WatchKey], forgotten: Iterable[WatchKey]) -> None:
        """The session's next request has come, which names these."""
        self._named = dict.fromkeys(named)
        self._due_again(self._named)
        for key in forgotten:
            self.forget(key)
        self._left = self._left or len(self._seen)
        others = len(self.due) - len(self._named)
        again = list(islice(self._seen, min(self._left, max(LOOKED_AT_MAX - others, AGAIN_MIN))))
        self._left = min(self._left, len(self._seen)) - len(again)
        self._due_again(again)

    def turn(self) -> list[WatchKey]:
        """Whom to look at now; there is `more` where that is not everybody."""
        due, named = self.due, self._named
        first = [key for key in named if key in due]
        others = (key for key in due if key not in named)
        return first + list(islice(others, LOOKED_AT_MAX))

    def more(self, looked_at: int) -> bool:
        """Whether there are others than so many that were just looked at."""
        return len(self.due) > looked_at or self._left > 0

    def _due_again(self, keys: Iterable[WatchKey]) -> None:
        for key in keys:
            self._seen.pop(key, None)
            self.due[key] = None

    def settled(self, key: WatchKey) -> None:
        """The follower has been told all there is; nothing is looked at until something happens."""
        self.due.pop(key, None)

    def served(self, key: WatchKey) -> None:
        """Records were sent: others get their turn first."""
        self.due.pop(key, None)
        self.due[key] = None

    def told(self, key: WatchKey) -> None:
        """There was nothing to send, and the follower is not where it has to be: it is looked at
        again after all others."""
        if key in self.due:
            del self.due[key]
            self._seen[key] = None

    def forget(self, key: WatchKey) -> None:
        """The partition has left the session."""
        self.due.pop(key, None)
        self._seen.pop(key, None)
        partition = self._covered.pop(key, None)
        if partition is not None:
            partition.unwatch(self)

    def close(self) -> None:
        """The session is over."""
        for partition in self._covered.values():
            partition.unwatch(self)
        self._covered.clear()
        self.due.clear()
        self._seen.clear()
        if self.wait is not None:
            # It would hear of nothing any more; its follower is to ask again, and begin anew.
            self.wait.interrupt()

    # --- what partitions tell (`Watch`) -------------------------------------------------------

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        self._seen.pop(key, None)
        self.due[key] = None
        wait = self.wait
        if wait is not None:
            if size_bytes:
                wait.more_bytes(size_bytes)
            else:
                wait.touched = True

    def interrupted(self, key: WatchKey) -> None:
        self._seen.pop(key, None)
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
