"""Key -> newest offset, for the dirty section of one log, within a budget of bytes.

A plain dictionary is the fastest thing Python has for this, and costs about 200 bytes a key;
Kafka's table costs 24 and keeps hashes alone. `log.cleaner.dedupe.buffer.size` is honoured as
memory, so that the same setting holds an eighth of the keys: a log with more of them takes several
rounds, as it does in Kafka.

Keys are compared whole up to KEY_BYTES_MAX; a longer one is stood for by 128 bits of BLAKE2. Those
are kept as numbers, which no key (bytes) can equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, TypeAlias

ENTRY_BYTES: Final = 200
KEY_BYTES_MAX: Final = 64
NO_KEY_OFFSET: Final = 2**63
"""A record without key is always older than this: compaction drops it."""
_DIGEST_BYTES: Final = 16

KeyId: TypeAlias = bytes | int | None


def long_key(key: bytes) -> int:
    """What stands for a key of more than KEY_BYTES_MAX."""
    return int.from_bytes(blake2b(key, digest_size=_DIGEST_BYTES).digest(), "big")


class KeyOffsets:
    """The map and how far it reaches.

    Attributes:
        offsets: key to newest offset; and for records without a key, one that is never reached.
        latest_offset: everything up to here, from the first dirty offset on, is in the map; -1
            before anything is.
    """

    __slots__ = ("capacity", "latest_offset", "offsets")

    def __init__(self, budget_bytes: int, load_factor: float = 1.0) -> None:
        self.capacity = max(1, int(budget_bytes * load_factor) // ENTRY_BYTES)
        self.offsets: dict[KeyId, int] = {None: NO_KEY_OFFSET}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def update(self, pairs: Iterable[tuple[KeyId, int]]) -> None:
        """Note keys with their offsets, in offset order."""
        self.offsets.update(pairs)
        self.offsets[None] = NO_KEY_OFFSET

    @property
    def is_full(self) -> bool:
        """No further batch is taken in. One that was begun is finished: rounds must get ahead."""
        return len(self) >= self.capacity

    @property
    def utilization(self) -> float:
        """Share of the budget in use."""
        return len(self) / self.capacity

    def reaches(self, offset: int) -> None:
        """Everything up to `offset` is in."""
        if offset > self.latest_offset:
            self.latest_offset = offset
