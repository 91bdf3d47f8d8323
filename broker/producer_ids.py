"""Producer ids for idempotent producers, from blocks that the controller hands out.

Ids are unique in the cluster because a block is given to one broker once (AllocateProducerIds).
What is left of a block when the broker stops is lost, which is harmless: there are 2^63.

The next block is asked for when a tenth of the current one is left, so that producers do not wait
for the controller. Only one question is under way at a time; if it fails, the next request for an
id asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from protocol.errors import ApiError, ErrorCode
from protocol.ids import ProducerId
from runtime.errors import invariant
from runtime.tasks import Supervisor

PREFETCH_FRACTION: Final = 0.1


class ProducerIdBlock(NamedTuple):
    """`size` ids from `first` on."""

    first: int
    size: int


AllocateBlock = Callable[[], Awaitable[ProducerIdBlock]]
"""Asks the controller for a block. Raises ApiError if it refuses or cannot be reached."""


class ProducerIds:
    """Hands out ids one by one."""

    def __init__(self, allocate: AllocateBlock, supervisor: Supervisor) -> None:
        self._allocate = allocate
        self._supervisor = supervisor
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: ProducerIdBlock | None = None
        self._asking: asyncio.Task[None] | None = None

    def take(self) -> ProducerId | None:
        """The next id, or None if the controller has to be asked first."""
        if self._next == self._end:
            if self._following is None:
                return None
            self._begin(self._following)
        producer_id = ProducerId(self._next)
        self._next += 1
        if self._next >= self._prefetch_at and self._following is None:
            self._ask()
        return producer_id

    async def take_or_wait(self) -> ProducerId:
        """The next id.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, which producers answer by trying again, when the
                controller gives no block.
        """
        producer_id = self.take()
        while producer_id is None:
            try:
                await asyncio.shield(self._ask())
            except ApiError as error:
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    f"no block of producer ids from the controller: {error}",
                ) from error
            producer_id = self.take()
        return producer_id

    def _begin(self, block: ProducerIdBlock) -> None:
        invariant(block.size > 0 and block.first >= self._end, f"bad block of ids {block}")
        self._following = None
        self._next, self._end = block.first, block.first + block.size
        self._prefetch_at = self._end - int(block.size * PREFETCH_FRACTION)

    def _ask(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._asking = self._supervisor.spawn(
                "allocate producer ids", self._fetch_block(), fatal=False
            )
            self._asking.add_done_callback(_look_at_error)
        return self._asking

    async def _fetch_block(self) -> None:
        self._following = await self._allocate()


def _look_at_error(task: asyncio.Task[None]) -> None:
    """A failed prefetch concerns nobody: the next request for an id asks again."""
    if not task.cancelled():
        task.exception()
