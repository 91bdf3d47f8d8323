"""Watchers of a partition: waiting fetches and followers' sessions."""

from __future__ import annotations

from typing import Protocol

from broker.replication.remote_replica import FetchTimes
from broker.replication.waits import FetchWait

WatchKey = tuple[str | bytes, int]


class Watch(FetchTimes, Protocol):
    """A follower's fetch session, which covers this partition without naming it each time."""

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        """There is something to tell; `size_bytes` more can be read (0: facts alone)."""

    def interrupted(self, key: WatchKey) -> None:
        """Leadership or existence changed: a fetch that waits is answered at once."""


class Watched:
    """The part of a partition that tells others."""

    __slots__ = ("_fetch_waits", "_replica_fetch_waits", "_watches")

    def __init__(self) -> None:
        # Dictionaries as ordered sets, for a reproducible order.
        self._fetch_waits: dict[FetchWait, None] = {}
        self._replica_fetch_waits: dict[FetchWait, None] = {}
        self._watches: dict[Watch, WatchKey] = {}

    def log_start_moved(self) -> None:
        """Followers are to hear of it now, not with the next append."""
        for watch, key in list(self._watches.items()):
            watch.interrupted(key)

    def watch(self, watch: Watch, key: WatchKey) -> None:
        """A follower's session covers this partition from now on."""
        self._watches[watch] = key

    def unwatch(self, watch: Watch) -> None:
        self._watches.pop(watch, None)

    def _touch_watches(self, size_bytes: int) -> None:
        for watch, key in self._watches.items():
            watch.touched(key, size_bytes)

    def add_fetch_wait(self, wait: FetchWait, *, replica: bool) -> None:
        """A replica's fetch is woken by appends, a consumer's by the high watermark."""
        (self._replica_fetch_waits if replica else self._fetch_waits)[wait] = None
        wait.places.append(self)

    def remove_fetch_wait(self, wait: FetchWait) -> None:
        self._fetch_waits.pop(wait, None)
        self._replica_fetch_waits.pop(wait, None)

    def _interrupt_fetches(self) -> None:
        if self._fetch_waits or self._replica_fetch_waits:
            for wait in [*self._fetch_waits, *self._replica_fetch_waits]:
                wait.interrupt()
        if not self._watches:
            return
        for watch, key in list(self._watches.items()):
            watch.interrupted(key)
