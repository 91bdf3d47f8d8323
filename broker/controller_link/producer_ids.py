"""Producer ids for idempotent producers, from blocks that the controller allocates.

Ids are unique in the cluster because a block is allocated to one broker once (AllocateProducerIds).
The rest of a block is lost when the broker stops, which is harmless: there are 2^63.

This is the pure part; `producer_id_blocks.py` sends the requests.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.errors import ApiError, ErrorCode
from protocol.ids import ProducerId
from runtime.errors import invariant

MAX_INT64: Final = 2**63 - 1
PREFETCH_FRACTION: Final = 0.1
"""When this fraction of a block is left the next one is requested, so that producers need not
wait."""


class ProducerIdBlock(NamedTuple):
    """`size` ids from `first` on."""

    first: int
    size: int


class ProducerIdBlocks:
    """The block in use and, near its end, the one that follows."""

    __slots__ = ("_end", "_following", "_next", "_prefetch_from")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._prefetch_from = 0
        self._following: ProducerIdBlock | None = None

    @property
    def wants_block(self) -> bool:
        """True if it is time to request a block."""
        return self._following is None and self._next >= self._prefetch_from

    def take(self) -> ProducerId | None:
        """Return the next id, or None when all are used."""
        if self._next == self._end:
            if self._following is None:
                return None
            block, self._following = self._following, None
            self._next, self._end = block.first, block.first + block.size
            self._prefetch_from = self._end - int(block.size * PREFETCH_FRACTION)
        producer_id = ProducerId(self._next)
        self._next += 1
        return producer_id

    def add(self, block: ProducerIdBlock) -> None:
        """Add a block from the controller; blocks rise, as the controller counts up.

        Raises:
            ApiError: the block is not above the present one, or ends beyond int64.
        """
        if block.size <= 0 or not self._end <= block.first <= MAX_INT64 - block.size:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The controller returned {block} as a block of producer ids after {self._end}",
            )
        invariant(self._following is None, f"second unused block of producer ids: {block}")
        self._following = block
