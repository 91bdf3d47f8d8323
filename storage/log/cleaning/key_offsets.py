"""Map from key to newest offset, for the dirty section of one log, within a budget of bytes.

A plain dictionary is the fastest map in Python, but costs about 200 bytes a key; Kafka's table
costs 24 and stores only hashes. `log.cleaner.dedupe.buffer.size` limits the memory, so the same
setting holds an eighth of the keys. A log with more keys takes several rounds, as in Kafka.

Keys of up to KEY_BYTES_MAX are compared whole; a longer key is represented by 128 bits of BLAKE2.
Such hashes are stored as integers, which no key (bytes) can equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, TypeAlias

ENTRY_BYTES: Final = 200
KEY_BYTES_MAX: Final = 64
NO_KEY_OFFSET: Final = 2**63
"""A record without a key always counts as older than this: compaction drops it."""
_DIGEST_BYTES: Final = 16

KeyId: TypeAlias = bytes | int | None


def long_key(key: bytes) -> int:
    """Return the integer that represents a key of more than KEY_BYTES_MAX."""
    return int.from_bytes(blake2b(key, digest_size=_DIGEST_BYTES).digest(), "big")


class KeyOffsets:
    """The map, and the offset up to which it is complete.

    Attributes:
        offsets: key to newest offset; records without a key map to an offset that is never reached.
        latest_offset: the map covers all offsets up to here, from the first dirty one on; -1 while
        it is empty.
    """

    __slots__ = ("capacity", "latest_offset", "offsets")

    def __init__(self, budget_bytes: int, load_factor: float = 1.0) -> None:
        self.capacity = max(1, int(budget_bytes * load_factor) // ENTRY_BYTES)
        self.offsets: dict[KeyId, int] = {None: NO_KEY_OFFSET}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def update(self, pairs: Iterable[tuple[KeyId, int]]) -> None:
        """Add keys with their offsets, in offset order."""
        self.offsets.update(pairs)
        self.offsets[None] = NO_KEY_OFFSET

    @property
    def is_full(self) -> bool:
        """True if no further batch is added. A batch that was begun is finished, so that rounds
        progress."""
        return len(self) >= self.capacity

    @property
    def utilization(self) -> float:
        """The share of the budget in use."""
        return len(self) / self.capacity

    def reaches(self, offset: int) -> None:
        """Note that the map covers all offsets up to `offset`."""
        if offset > self.latest_offset:
            self.latest_offset = offset
