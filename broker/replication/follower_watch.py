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
from broker.replication.session_watch import SessionWatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from broker.replication.audience import WatchKey


LOOKED_AT_MAX: Final = 500
"""Partitions that one fetch looks at beside those that it names: a few milliseconds."""
AGAIN_MIN: Final = 100
"""So many of those that are looked at again have their turn, however much is due."""


class FollowerWatch(SessionWatch):
    """One per fetch session of a follower. Its partitions tell it all that happens: how long a
    follower rests is its session's time, so it covers them until it is over."""

    __slots__ = ("_left", "_named", "_seen", "broker_epoch", "fetch_ms", "is_current", "replica_id")

    def __init__(self) -> None:
        super().__init__(replica=True)
        # Dictionaries as ordered sets: whom the newest request names; who was looked at and is not
        # settled, and how many of those this round has yet to come to.
        self._named: dict[WatchKey, None] = {}
        self._seen: dict[WatchKey, None] = {}
        self._left = 0
        self.fetch_ms = NEVER_MS
        self.replica_id = -1
        self.broker_epoch = -1
        self.is_current = False
        """Whether the metadata has had this epoch since the session named it."""

    def is_of_earlier_life(self, replica_id: int, broker_epoch: int) -> bool:
        return self.replica_id == replica_id and self.broker_epoch < broker_epoch

    def requested(self, named: Iterable[WatchKey], forgotten: Collection[WatchKey]) -> None:
        """The session's next request has come, which names these."""
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
        """Whom to look at now; there is `more` where that is not everybody."""
        due, named = self.due, self._named
        first = [key for key in named if key in due]
        if len(first) == len(due):
            return first
        others = (key for key in due if key not in named)
        return first + list(islice(others, LOOKED_AT_MAX))

    def more(self, looked_at: int) -> bool:
        """Whether there are others than so many that were just looked at."""
        return len(self.due) > looked_at or self._left > 0

    def _due_again(self, keys: Iterable[WatchKey]) -> None:
        for key in keys:
            self._seen.pop(key, None)
            self.due[key] = None

    def told(self, key: WatchKey) -> None:
        """There was nothing to send, and the follower is not where it has to be: it is looked at
        again after all others."""
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
