"""Shell: Blocks of producer ids, the next one requested before the present one is used up.

Only one request is in flight at a time; if it fails, the next use of an id repeats it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from broker.controller_link.producer_ids import ProducerIdBlock, ProducerIdBlocks
from protocol.errors import ApiError, ErrorCode
from protocol.ids import ProducerId
from runtime.tasks import Supervisor

AllocateBlock = Callable[[], Coroutine[Any, Any, ProducerIdBlock]]
"""Requests a block from the controller. Raises ApiError if it refuses or is not reachable."""


class ProducerIds:
    """Producer ids of this broker, one by one."""

    def __init__(self, allocate: AllocateBlock, supervisor: Supervisor) -> None:
        self._allocate = allocate
        self._supervisor = supervisor
        self._blocks = ProducerIdBlocks()
        self._asking: asyncio.Task[None] | None = None

    def take(self) -> ProducerId | None:
        """Return the next id, or None if a block must be requested first."""
        producer_id = self._blocks.take()
        if producer_id is not None and self._blocks.wants_block:
            self._ask()
        return producer_id

    async def take_or_wait(self) -> ProducerId:
        """Return the next id, and request a block first if necessary.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, after which producers retry, when the controller
                grants no block.
        """
        while (producer_id := self.take()) is None:
            try:
                await asyncio.shield(self._ask())
            except ApiError as error:
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    f"cannot get a block of producer ids from the controller: {error}",
                ) from error
        return producer_id

    def _ask(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._asking = self._supervisor.spawn(
                "allocate producer ids", self._fetch_block(), fatal=False
            )
            self._asking.add_done_callback(_look_at_error)
        return self._asking

    async def _fetch_block(self) -> None:
        self._blocks.add(await self._allocate())


def _look_at_error(task: asyncio.Task[None]) -> None:
    """Mark the exception as retrieved: the next use of an id repeats a failed request."""
    if not task.cancelled():
        task.exception()
