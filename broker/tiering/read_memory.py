"""Memory of reads from the tier: results kept for the next fetches, and where reads ended.

Results are kept for a limited time and up to a limited size. Sent data counts until the kernel has
it (`held.py`). If clients that do not read their responses hold too much, no read may start until
they read them or disconnect, as with an exhausted quota.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.tiering.held import HeldBuffers
from broker.tiering.windows import KeptWindows, Place, Stream, Window

if TYPE_CHECKING:
    from storage.log.log import Log

PART_BYTES_MAX: Final = 4 << 20
"""Limit for one read, except for a first batch that is larger. For this size the store's cost per
request is small; twice the size would save a tenth."""
KEPT_BYTES_MAX: Final = 64 << 20
HELD_BYTES_MAX: Final = 256 << 20
"""Limit for kept results and for responses that clients have not read, together."""
KEPT_MS: Final = 30_000.0
"""How long a result is kept for a fetch."""
FOLLOWED_MAX: Final = 1_000
"""Number of ends of earlier reads that are remembered."""


class ReadMemory:
    """The results of a broker's reads, in memory."""

    def __init__(self) -> None:
        self._kept = KeptWindows()
        self._held = HeldBuffers()
        self._followed: dict[tuple[bytes, int, int], Place] = {}
        """By topic id, partition and offset: where a read ended, so the offset is the next to
        read."""

    def __len__(self) -> int:
        """Return the number of kept results."""
        return len(self._kept)

    @property
    def kept_bytes(self) -> int:
        """Size of the results that are kept."""
        return self._kept.bytes

    @property
    def has_room(self) -> bool:
        """True if the memory in use allows more reads."""
        return self._held.bytes < HELD_BYTES_MAX

    def has_room_for(self, parts: int) -> bool:
        """Return whether this number of parts can be kept in addition to the results not yet read
        to the end."""
        return self._kept.unread_bytes + PART_BYTES_MAX * parts <= KEPT_BYTES_MAX

    def add(self, stream: Stream, log: Log, window: Window, now_ms: float) -> None:
        """Keep a result, and remember where the read ended."""
        self._kept.add(stream, log, window, now_ms)
        self._held.add(window.records, window.held_bytes)
        if window.end is not None:
            followed = self._followed
            followed[stream.topic_id, stream.partition, window.last_offset + 1] = window.end
            if len(followed) > FOLLOWED_MAX:
                del followed[next(iter(followed))]

    def find(self, stream: Stream, log: Log, offset: int) -> Window | None:
        """Return a kept result for a read. It stays for other readers, unless it is no longer
        valid."""
        window = self._kept.find(stream, log, offset)
        if window is not None and not belongs_to(log, window, offset):
            self._kept.remove(window)
            return None
        return window

    def end_before(self, stream: Stream, offset: int) -> Place | None:
        """Return where the read before `offset` ended; None if unknown."""
        return self._followed.get((stream.topic_id, stream.partition, offset))

    def spend(self, window: Window, now_ms: float) -> None:
        """Note that a result was read to the end."""
        self._kept.spend(window, now_ms)

    def remove_old(self, now_ms: float) -> None:
        """Remove the results that are too old, and those above the limits."""
        kept = self._kept
        kept.remove_older(now_ms - KEPT_MS)
        while kept and (kept.bytes > KEPT_BYTES_MAX or not self.has_room):
            kept.remove_one()


def belongs_to(log: Log, window: Window, offset: int) -> bool:
    """Return whether `window`, read from `offset` on, belongs to this log: its last record has the
    same epoch here, which implies the same records before it."""
    return (
        log.log_start_offset <= offset
        and window.last_offset < log.high_watermark
        and log.epochs.epoch_at(window.last_offset) == window.last_epoch
    )
