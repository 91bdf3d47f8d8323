"""The audience of a partition: those who are told what happens to it.

One index for all who read it or wait for it. The partition returns what has happened, as effects;
who is told of what is decided here and nowhere else:

| what happened | consumers | followers | who waits for an offset |
|---|---|---|---|
| batches were appended | | so many bytes | |
| the high watermark moved | so many bytes | a fact | commits up to there |
| the ISR, or what was proposed, changed | | a fact | |
| the log start moved | a fact | at once | |
| another role or epoch, deleted, disk broken | at once | at once | an error |

A reader is a `Watch`: a fetch session, or one fetch without a session. It keeps in mind of which
partitions it was told something, so that a fetch looks at those alone.
"""

from __future__ import annotations

from typing import Protocol

from broker.replication.effects import Committed, Readable
from broker.replication.offset_waits import OffsetWaits
from protocol.errors import ErrorCode

WatchKey = tuple[str | bytes, int]


class Watch(Protocol):
    """Whose fetches cover this partition without naming it each time."""

    @property
    def replica(self) -> bool:
        """Whether it is a follower's, which reads what is not committed yet."""

    def touched(self, key: WatchKey, size_bytes: int) -> None:
        """There is something to tell; `size_bytes` more can be read (0: facts alone)."""

    def interrupted(self, key: WatchKey) -> None:
        """Leadership or existence changed: a fetch that waits is answered at once."""


class Audience:
    """The part of a partition that tells others. `EffectTable` has it tell."""

    __slots__ = ("_commit_waits", "_consumers", "_followers", "_low_watermark_waits")

    def __init__(self) -> None:
        # Dictionaries as ordered sets, for a reproducible order.
        self._consumers: dict[Watch, WatchKey] = {}
        self._followers: dict[Watch, WatchKey] = {}
        self._commit_waits = OffsetWaits()
        self._low_watermark_waits = OffsetWaits()

    def watch(self, watch: Watch, key: WatchKey) -> None:
        """It is told from now on, of a partition that it calls `key`."""
        (self._followers if watch.replica else self._consumers)[watch] = key

    def unwatch(self, watch: Watch) -> None:
        (self._followers if watch.replica else self._consumers).pop(watch, None)

    def watches(self) -> list[Watch]:
        """All that are told."""
        return [*self._consumers, *self._followers]

    def log_start_moved(self) -> None:
        """Followers are to hear of it now, not with the next append."""
        # Copies of what consumers are in, here and below: one that does not wait leaves.
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
            # Nobody is told NOT_ENOUGH_REPLICAS_AFTER_APPEND: below the minimum the mark stands
            # still, so a batch below it has as many replicas as the minimum asks.
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
        """What they wait for does not happen here any more."""
        self._commit_waits.fail(error)
        self._low_watermark_waits.fail(error)
        self.interrupt()
