"""Shell: Tasks of a journal: at most one of each name, and backoffs that a metadata image ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from broker.tiering.pauses import Pauses
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.tiered.records import METADATA_TOPIC

_log = get_logger("broker.tier")


class JournalTasks:
    """The tasks of one journal."""

    def __init__(self, supervisor: Supervisor, *, clock: Clock, rng: random.Random) -> None:
        self.closed = False
        self._supervisor = supervisor
        self._rng = rng
        self._quiet = RateLimited(clock, 10_000)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._image = asyncio.Event()

    def run(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        ended: Callable[[], None],
    ) -> None:
        """Start `work` unless a task with this name is running.

        Args:
            ended: called after the task's end, unless it was cancelled: new work may have been
                requested when the task was about to end.
        """
        if self.closed or name in self._running:
            return
        task = self._supervisor.spawn(f"tier metadata: {name}", work(), fatal=False)
        self._running[name] = task
        task.add_done_callback(lambda done: self._ended(name, done, ended))

    def _ended(self, name: str, task: asyncio.Task[None], ended: Callable[[], None]) -> None:
        del self._running[name]
        if task.cancelled() or self.closed:
            return
        error = task.exception()
        if error is not None:
            self.survive(error)
        ended()

    def survive(self, error: BaseException, **facts: Any) -> None:
        """Report an exception that must not stop the node."""
        self._supervisor.survive("remote log metadata", error, **facts)

    def backoff(self) -> Pauses:
        """Return the backoffs of one piece of work, the shortest first."""
        return Pauses(self._rng)

    def image_published(self) -> None:
        """End all backoffs: a new metadata image may have another leader."""
        image, self._image = self._image, asyncio.Event()
        image.set()

    async def pause(self, pauses: Pauses) -> None:
        """Wait for a backoff that grows, or until the next metadata image."""
        try:
            async with asyncio.timeout(pauses.next_s()):
                await self._image.wait()
        except TimeoutError:
            return

    def warn(self, what: str, error: BaseException) -> None:
        """Log a failed attempt that is repeated, at most one per text and ten seconds."""
        held_back = self._quiet.admit(what)
        if held_back is not None:
            _log.warning(
                f"{what}, trying again",
                topic=METADATA_TOPIC,
                error=str(error),
                held_back=held_back,
            )

    async def close(self) -> None:
        """Start no more tasks, and cancel those that run."""
        self.closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
