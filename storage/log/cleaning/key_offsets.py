"""Key -> newest offset, for the dirty section of one log, within a budget of bytes.

A plain dictionary is the fastest thing Python has for this, and costs about 200 bytes a key;
Kafka's table costs 24 and keeps hashes alone. `log.cleaner.dedupe.buffer.size` is honoured as
memory, so that the same setting holds an eighth of the keys: a log with more of them takes several
rounds, as it does in Kafka.

Keys are compared whole up to KEY_BYTES_MAX; a longer one is stood for by 128 bits of BLAKE2. Those
are kept as numbers, which no key (bytes) can equal.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, TypeAlias

ENTRY_BYTES: Final = 200
KEY_BYTES_MAX: Final = 64
_DIGEST_BYTES: Final = 16

KeyId: TypeAlias = bytes | int


def long_key(key: bytes) -> int:
    """What stands for a key of more than KEY_BYTES_MAX."""
    return int.from_bytes(blake2b(key, digest_size=_DIGEST_BYTES).digest(), "big")


def key_id(key: bytes) -> KeyId:
    """What stands for a key in the map."""
    return key if len(key) <= KEY_BYTES_MAX else long_key(key)


class KeyOffsets:
    """The map and how far it reaches.

    Attributes:
        offsets: filled by `walk.collect_keys`, read by `walk.judge`: their loops are the cost of
            cleaning, and a call per record would double it.
        latest_offset: everything up to here, from the first dirty offset on, is in the map; -1
            before anything is.
    """

    __slots__ = ("capacity", "latest_offset", "offsets")

    def __init__(self, budget_bytes: int, load_factor: float = 1.0) -> None:
        self.capacity = max(1, int(budget_bytes * load_factor) // ENTRY_BYTES)
        self.offsets: dict[KeyId, int] = {}
        self.latest_offset = -1

    @property
    def is_full(self) -> bool:
        """No further batch is taken in. One that was begun is finished: rounds must get ahead."""
        return len(self.offsets) >= self.capacity

    @property
    def utilization(self) -> float:
        """Share of the budget in use."""
        return len(self.offsets) / self.capacity

    def reaches(self, offset: int) -> None:
        """Everything up to `offset` is in."""
        if offset > self.latest_offset:
            self.latest_offset = offset
