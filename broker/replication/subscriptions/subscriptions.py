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

from collections.abc import Callable
from typing import Any, Final, Protocol

from broker.replication.subscriptions.notifications import (
    Committed,
    Interrupted,
    IsrChanged,
    LowWatermarkMoved,
    Readable,
    Released,
)
from broker.replication.waiting.offset_waits import OffsetWaits

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


class Subscriptions:
    """The subscribers of one partition. The partition has it, and reads whether there are any, but
    never notifies them: `EffectTable` passes each notification to its row in `NOTIFY`."""

    __slots__ = ("commit_waits", "consumers", "followers", "low_watermark_waits")

    def __init__(self) -> None:
        # Dictionaries as ordered sets, for a reproducible order.
        self.consumers: dict[Watch, WatchKey] = {}
        self.followers: dict[Watch, WatchKey] = {}
        self.commit_waits = OffsetWaits()
        self.low_watermark_waits = OffsetWaits()

    def add(self, watch: Watch, key: WatchKey) -> None:
        """Add a reader, which refers to this partition as `key`."""
        (self.followers if watch.replica else self.consumers)[watch] = key

    def remove(self, watch: Watch) -> None:
        """Remove a reader; one that is not subscribed is ignored."""
        (self.followers if watch.replica else self.consumers).pop(watch, None)

    def watches(self) -> list[Watch]:
        """Return all readers, consumers first."""
        return [*self.consumers, *self.followers]

    def log_start_moved(self) -> None:
        """Notify all readers; a follower's waiting fetch is answered now, not with the next
        append."""
        # Iterate over copies of the consumers, here and below: one that has no waiting fetch
        # unsubscribes.
        for watch, key in list(self.consumers.items()):
            watch.touched(key, 0)
        for watch, key in list(self.followers.items()):
            watch.interrupted(key)

    def readable(self, effect: Readable) -> None:
        size_bytes = effect.size_bytes
        for watch, key in self.followers.items():
            watch.touched(key, size_bytes)

    def committed(self, effect: Committed) -> None:
        high_watermark, size_bytes = effect
        if self.commit_waits:
            # NOT_ENOUGH_REPLICAS_AFTER_APPEND is never returned. Below the minimum ISR the high
            # watermark stands still, so a batch below it has at least that number of replicas.
            self.commit_waits.reached(high_watermark)
        if self.consumers:
            for watch, key in list(self.consumers.items()):
                watch.touched(key, size_bytes)
        for watch, key in self.followers.items():
            watch.touched(key, 0)

    def isr_changed(self, _: IsrChanged) -> None:
        for watch, key in self.followers.items():
            watch.touched(key, 0)

    def low_watermark_moved(self, effect: LowWatermarkMoved) -> None:
        self.low_watermark_waits.reached(effect.low_watermark)

    def interrupted(self, _: Interrupted) -> None:
        self._interrupt()

    def released(self, effect: Released) -> None:
        """Fail the requests that wait for an offset and interrupt the waiting fetches."""
        self.commit_waits.fail(effect.error)
        self.low_watermark_waits.fail(effect.error)
        self._interrupt()

    def _interrupt(self) -> None:
        for watch, key in [*self.consumers.items(), *self.followers.items()]:
            watch.interrupted(key)


NOTIFY: Final[dict[type[object], Callable[[Subscriptions, Any], None]]] = {
    Readable: Subscriptions.readable,
    Committed: Subscriptions.committed,
    IsrChanged: Subscriptions.isr_changed,
    LowWatermarkMoved: Subscriptions.low_watermark_moved,
    Interrupted: Subscriptions.interrupted,
    Released: Subscriptions.released,
}
"""The method that carries out each kind of notification."""
