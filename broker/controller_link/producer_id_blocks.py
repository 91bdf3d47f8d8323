"""Shell: Blocks of producer ids, the next one asked for before the present one is used up.

Only one question is under way at a time; if it fails, the next request for an id asks again.
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
"""Asks the controller for a block. Raises ApiError if it refuses or cannot be reached."""


class ProducerIds:
    """Producer ids of this broker, one by one."""

    def __init__(self, allocate: AllocateBlock, supervisor: Supervisor) -> None:
        self._allocate = allocate
        self._supervisor = supervisor
        self._blocks = ProducerIdBlocks()
        self._asking: asyncio.Task[None] | None = None

    def take(self) -> ProducerId | None:
        """The next id, or None if the controller has to be asked first."""
        producer_id = self._blocks.take()
        if producer_id is not None and self._blocks.wants_block:
            self._ask()
        return producer_id

    async def take_or_wait(self) -> ProducerId:
        """The next id.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, which producers answer by trying again, when the
                controller gives no block.
        """
        while (producer_id := self.take()) is None:
            try:
                await asyncio.shield(self._ask())
            except ApiError as error:
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    f"no block of producer ids from the controller: {error}",
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
    """A failed prefetch concerns nobody: the next request for an id asks again."""
    if not task.cancelled():
        task.exception()
