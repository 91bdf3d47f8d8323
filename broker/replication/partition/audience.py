"""Subscriptions to one partition: fetch sessions, single fetches, waits for an offset.

A partition returns its changes as effects. This module alone decides which subscribers each change
reaches:

| change | consumers | followers | requests that wait for an offset |
|---|---|---|---|
| batches appended | | byte count | |
| high watermark moved | byte count | state change | commits up to it |
| ISR or proposed ISR changed | | state change | |
| log start moved | state change | at once | |
| role or epoch changed, deleted, disk failed | at once | at once | an error |

A reader is a `Watch`: a fetch session, or one fetch without a session. A watch remembers the
partitions that have notified it, so that a fetch reads those alone.
"""

from __future__ import annotations

from typing import Protocol

from broker.replication.partition.effects import Committed, Readable
from broker.replication.waiting.offset_waits import OffsetWaits
from protocol.errors import ErrorCode

WatchKey = tuple[str | bytes, int]


class Watch(Protocol):
    """A fetch session or a single fetch that covers this partition without naming it in each
    request."""

    @property
    def replica(self) -> bool:
        """Return whether the reader is a follower, which reads uncommitted records too."""

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        """Note a change: `size_bytes` more bytes are readable (0: only other state has changed)."""

    def interrupted(self, key: WatchKey) -> None:
        """Note a change of leadership or existence: a waiting fetch is answered at once."""


class Audience:
    """The part of a partition that notifies its subscribers. `EffectTable` calls it."""

    __slots__ = ("_commit_waits", "_consumers", "_followers", "_low_watermark_waits")

    def __init__(self) -> None:
        # Dictionaries as ordered sets, for a reproducible order.
        self._consumers: dict[Watch, WatchKey] = {}
        self._followers: dict[Watch, WatchKey] = {}
        self._commit_waits = OffsetWaits()
        self._low_watermark_waits = OffsetWaits()

    def watch(self, watch: Watch, key: WatchKey) -> None:
        """Add a subscriber, which refers to this partition as `key`."""
        (self._followers if watch.replica else self._consumers)[watch] = key

    def unwatch(self, watch: Watch) -> None:
        (self._followers if watch.replica else self._consumers).pop(watch, None)

    def watches(self) -> list[Watch]:
        """Return all subscribers, consumers first."""
        return [*self._consumers, *self._followers]

    def log_start_moved(self) -> None:
        """Notify all subscribers; a follower's waiting fetch is answered now, not with the next
        append."""
        # Iterate over copies of the consumers, here and below: one that has no waiting fetch
        # unsubscribes.
        for watch, key in list(self._consumers.items()):
            watch.touched(key, 0)
        for watch, key in list(self._followers.items()):
            watch.interrupted(key)

    def tell_appended(self, effect: Readable) -> None:
        size_bytes = effect.size_bytes
        for watch, key in self._followers.items():
            watch.touched(key, size_bytes)

    def tell_committed(self, effect: Committed) -> None:
        high_watermark, size_bytes = effect
        if self._commit_waits:
            # NOT_ENOUGH_REPLICAS_AFTER_APPEND is never returned. Below the minimum ISR the high
            # watermark stands still, so a batch below it has at least that number of replicas.
            self._commit_waits.reached(high_watermark)
        if self._consumers:
            for watch, key in list(self._consumers.items()):
                watch.touched(key, size_bytes)
        if self._followers:
            self.tell_isr_changed()

    def tell_isr_changed(self) -> None:
        for watch, key in self._followers.items():
            watch.touched(key, 0)

    def interrupt(self) -> None:
        for watch, key in [*self._consumers.items(), *self._followers.items()]:
            watch.interrupted(key)

    def tell_low_watermark(self, low_watermark: int) -> None:
        self._low_watermark_waits.reached(low_watermark)

    def release(self, error: ErrorCode) -> None:
        """Fail the requests that wait for an offset and interrupt the waiting fetches."""
        self._commit_waits.fail(error)
        self._low_watermark_waits.fail(error)
        self.interrupt()
