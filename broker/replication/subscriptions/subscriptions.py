"""Subscriptions to one partition: fetch sessions, single fetches, waits for an offset.

A partition returns its changes as effects. This module alone decides which subscribers each change
reaches:

| change | consumers | read_committed consumers | followers | requests that wait for an offset |
|---|---|---|---|---|
| batches appended | | | byte count | |
| high watermark moved | byte count | state change | state change | commits up to it |
| last stable offset moved | | byte count | | |
| ISR or proposed ISR changed | | | state change | |
| log start moved | state change | state change | at once | |
| role or epoch changed, deleted, disk failed | at once | at once | at once | an error |

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
    StableMoved,
)
from broker.replication.waiting.offset_waits import OffsetWaits

WatchKey = tuple[str | bytes, int]


class Watch(Protocol):
    """A fetch session or a single fetch that covers this partition without naming it in each
    request."""

    @property
    def replica(self) -> bool:
        """Return whether the reader is a follower, which reads uncommitted records too."""

    @property
    def committed(self) -> bool:
        """Return whether the reader is a consumer that reads up to the last stable offset. A watch
        changes it only while it is not subscribed."""

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        """Note a change: `size_bytes` more bytes are readable (0: only other state has changed)."""

    def interrupted(self, key: WatchKey) -> None:
        """Note a change of leadership or existence: a waiting fetch is answered at once."""


class Subscriptions:
    """The subscribers of one partition. The partition has it, and reads whether there are any, but
    never notifies them: `EffectTable` passes each notification to its row in `NOTIFY`."""

    __slots__ = (
        "commit_waits", "committed_consumers", "consumers", "followers", "low_watermark_waits",
    )  # fmt: skip

    def __init__(self) -> None:
        # Dictionaries as ordered sets, for a reproducible order.
        self.consumers: dict[Watch, WatchKey] = {}
        self.committed_consumers: dict[Watch, WatchKey] = {}
        self.followers: dict[Watch, WatchKey] = {}
        self.commit_waits = OffsetWaits()
        self.low_watermark_waits = OffsetWaits()

    def add(self, watch: Watch, key: WatchKey) -> None:
        """Add a reader, which refers to this partition as `key`."""
        self._readers_like(watch)[watch] = key

    def remove(self, watch: Watch) -> None:
        """Remove a reader; one that is not subscribed is ignored."""
        self._readers_like(watch).pop(watch, None)

    def _readers_like(self, watch: Watch) -> dict[Watch, WatchKey]:
        if watch.replica:
            return self.followers
        return self.committed_consumers if watch.committed else self.consumers

    def watches(self) -> list[Watch]:
        """Return all readers, consumers first."""
        return [*self.consumers, *self.committed_consumers, *self.followers]

    def log_start_moved(self) -> None:
        """Notify all readers; a follower's waiting fetch is answered now, not with the next
        append."""
        # Iterate over copies of the consumers, here and below: one that has no waiting fetch
        # unsubscribes.
        for watch, key in [*self.consumers.items(), *self.committed_consumers.items()]:
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
        if self.committed_consumers:
            for watch, key in list(self.committed_consumers.items()):
                watch.touched(key, 0)
        for watch, key in self.followers.items():
            watch.touched(key, 0)

    def stable_moved(self, effect: StableMoved) -> None:
        for watch, key in list(self.committed_consumers.items()):
            watch.touched(key, effect.size_bytes)

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
        consumers = [*self.consumers.items(), *self.committed_consumers.items()]
        for watch, key in [*consumers, *self.followers.items()]:
            watch.interrupted(key)


NOTIFY: Final[dict[type[object], Callable[[Subscriptions, Any], None]]] = {
    Readable: Subscriptions.readable,
    Committed: Subscriptions.committed,
    StableMoved: Subscriptions.stable_moved,
    IsrChanged: Subscriptions.isr_changed,
    LowWatermarkMoved: Subscriptions.low_watermark_moved,
    Interrupted: Subscriptions.interrupted,
    Released: Subscriptions.released,
}
"""The method that carries out each kind of notification."""
