"""Partitions with news for a follower's fetch session.

A follower of thousands of partitions fetches twice a second while nothing happens. Checking each
partition each time would cost a leader more than all its producers. So each partition of the
session notifies it of new records or changed state (`touched`), and a fetch checks those partitions
alone. The follower has read all others to the end, and the time of the session's newest fetch
applies to them (`fetch_ms`, see `RemoteReplica.resting`).

A leader of thousands of new partitions has news of all of them at once. One fetch checks the
partitions that it names and some of the others, and is answered at once while more are due. The
next fetch continues. A partition may have no news and still not be settled, for example while the
follower may not join the ISR. Such partitions are checked again in rounds, and a fetch waits only
at the end of a round.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.replication.partition.remote_replica import NEVER_MS
from broker.replication.sessions.session_watch import SessionWatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from broker.replication.subscriptions.subscriptions import WatchKey


LOOKED_AT_MAX: Final = 500
"""Partitions that one fetch checks besides those that it names: a few milliseconds."""
AGAIN_MIN: Final = 100
"""Minimum number of unsettled partitions that a fetch checks again, whatever else is due."""


class FollowerWatch(SessionWatch):
    """News of one fetch session of a follower. Its partitions report to it until the session ends,
    because the time of its newest fetch applies to all that the follower has read to the end."""

    __slots__ = ("_left", "_named", "_seen", "broker_epoch", "fetch_ms", "is_current", "replica_id")

    def __init__(self) -> None:
        super().__init__(replica=True)
        # Dictionaries as ordered sets: partitions that the newest request names; partitions that
        # were checked and are not settled; `_left` is how many of those this round has yet to
        # check.
        self._named: dict[WatchKey, None] = {}
        self._seen: dict[WatchKey, None] = {}
        self._left = 0
        self.fetch_ms = NEVER_MS
        self.replica_id = -1
        self.broker_epoch = -1
        self.is_current = False
        """True if the metadata has contained this broker epoch since the session named it."""

    def is_of_earlier_life(self, replica_id: int, broker_epoch: int) -> bool:
        return self.replica_id == replica_id and self.broker_epoch < broker_epoch

    def requested(self, named: Iterable[WatchKey], forgotten: Collection[WatchKey]) -> None:
        """Note the session's next request, which names these partitions, and select which to check
        again."""
        self._named = dict.fromkeys(named)
        if not self._seen and not forgotten:
            self.due.update(self._named)
            self._left = 0
            return
        self._due_again(self._named)
        for key in forgotten:
            self.forget(key)
        self._left = self._left or len(self._seen)
        others = len(self.due) - len(self._named)
        again = list(islice(self._seen, min(self._left, max(LOOKED_AT_MAX - others, AGAIN_MIN))))
        self._left = min(self._left, len(self._seen)) - len(again)
        self._due_again(again)

    def turn(self) -> list[WatchKey]:
        """Return the partitions to check now; `more` reports whether others are left."""
        due, named = self.due, self._named
        first = [key for key in named if key in due]
        if len(first) == len(due):
            return first
        others = (key for key in due if key not in named)
        return first + list(islice(others, LOOKED_AT_MAX))

    def more(self, looked_at: int) -> bool:
        """Return whether more partitions are due than the `looked_at` that were just checked."""
        return len(self.due) > looked_at or self._left > 0

    def _due_again(self, keys: Iterable[WatchKey]) -> None:
        for key in keys:
            self._seen.pop(key, None)
            self.due[key] = None

    def told(self, key: WatchKey) -> None:
        """Note that a partition has no news but is not settled: check it again after all others."""
        if key in self.due:
            del self.due[key]
            self._seen[key] = None

    def forget(self, key: WatchKey) -> None:
        super().forget(key)
        self._seen.pop(key, None)

    def close(self) -> None:
        super().close()
        self._seen.clear()

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        self._seen.pop(key, None)
        self.due[key] = None
        if self.wait is not None:
            self.wait.more_bytes(size_bytes)

    def interrupted(self, key: WatchKey) -> None:
        self._seen.pop(key, None)
        self.due[key] = None
        if self.wait is not None:
            self.wait.interrupt()
