"""Shell: Periodic work on a broker's logs: one task for each chore."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from protocol.errors import ApiError
from runtime.log import get_logger
from runtime.tasks import Supervisor
from storage.files.reserve import OUT_OF_DESCRIPTORS
from storage.log.cleaning.cleaner import LogCleaner

MAINTENANCE_MS: Final = 1_000.0

_log = get_logger("broker.assembly")


class Maintenance:
    """The maintenance tasks of one broker."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._tasks: list[asyncio.Task[None]] = []

    def start(
        self, chores: Mapping[str, Callable[[], Awaitable[object]]], cleaner: LogCleaner
    ) -> None:
        """Start a task for each chore, by name, and one for the cleaner."""
        self._tasks = [
            self._supervisor.spawn(f"log {name}", self._repeat(chore))
            for name, chore in chores.items()
        ]
        self._tasks.append(self._supervisor.spawn("log cleaner", cleaner.run()))

    async def _repeat(self, chore: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(MAINTENANCE_MS / 1000.0)
            try:
                await chore()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise  # an error of the disk
                _log.warning("log maintenance is tried again", error=str(error))
            except ApiError:
                raise
            except Exception as error:  # noqa: BLE001 - headers are what producers wrote
                self._supervisor.survive("log maintenance", error)

    async def stop(self) -> None:
        """Cancel the tasks and wait for their end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
