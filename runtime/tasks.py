"""Shell: Supervised tasks, whose references are kept and whose failures are reported.

asyncio keeps only weak references to tasks, and reports an unhandled exception when the task is
collected, if ever. A node whose fetcher died silently is worse than a stopped node. So every
long-lived task goes through a `Supervisor`. It holds the reference, and reports the first task that
ends with an exception to `on_fatal`, which stops the node.

Tasks that serve one request or one connection belong to the transport, which has its own rule
(answer or close). They are spawned here with `fatal=False`, so that only a broken invariant stops
the node.

Work on bytes from outside (a client's batch, a leader's response) may fail in an unforeseen way.
Then only that piece of work ends: its code calls `survive` and continues. Otherwise a client that
sends the same bytes to all nodes would stop them all. docs/fatal-tasks.md lists the tasks that stop
the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from runtime.errors import InvariantViolated
from runtime.log import get_logger
from runtime.metrics import Family

HEAD_BYTES = 64
"""Logged length of the data of a survived failure: the header of a record batch."""

_log = get_logger("runtime.tasks")

T = TypeVar("T")

OnFatal = Callable[[str, BaseException], None]


def _raise_later(name: str, error: BaseException) -> None:
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": f"task {name!r} failed", "exception": error})


class Supervisor:
    """Owner of tasks. `on_fatal(name, error)` is called once, for the first fatal failure."""

    def __init__(self, on_fatal: OnFatal | None = None) -> None:
        # A dictionary as an ordered set: `close` cancels in a reproducible order.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._on_fatal: OnFatal = on_fatal if on_fatal is not None else _raise_later
        self._closing = False
        self.failure: tuple[str, BaseException] | None = None
        self.survived: dict[str, int] = {}
        """Numbers of unforeseen failures that did not stop the node, by the kind of work."""

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(
        self, name: str, coro: Coroutine[Any, Any, T], *, fatal: bool = True
    ) -> asyncio.Task[T]:
        """Run `coro` as a task, which `close` cancels if it still runs.

        With `fatal`, any exception stops the node. Without, only `InvariantViolated` does, and the
        caller (or a done callback) reads other exceptions from the task.
        """
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._fatal_done if fatal else self._quiet_done)
        return task

    def report(self, name: str, error: BaseException) -> None:
        """Report a fatal failure found outside of any task (in a callback, a protocol)."""
        if self.failure is None:
            self.failure = (name, error)
            self._on_fatal(name, error)

    def survive(
        self,
        work: str,
        error: BaseException,
        data: bytes | bytearray | memoryview = b"",
        /,
        **about: Any,
    ) -> None:
        """Count and log an unforeseen failure of work on bytes from outside (`data`, if known).

        The caller answers or retries later, and continues. The log contains the 1st, 2nd, 4th, 8th
        ... of a kind, because a client can repeat it a million times. A broken invariant still
        stops the node.
        """
        count = self.survived[work] = self.survived.get(work, 0) + 1
        if count & (count - 1) == 0:
            _log.error(
                "Work on bytes from outside failed",
                work=work,
                count=count,
                bytes=len(data),
                head=bytes(data[:HEAD_BYTES]).hex(),
                exc_info=error,
                **about,
            )
        if isinstance(error, InvariantViolated):
            self.report(work, error)

    def collect(self) -> Iterable[Family]:
        """Yield the metric families for the registry."""
        yield Family(
            "kraftbox_unforeseen_errors_total",
            "Unexpected failures while handling bytes from clients or other nodes",
            "counter",
            [({"work": work}, count) for work, count in {"request": 0, **self.survived}.items()],
        )

    async def close(self) -> None:
        """Cancel all running tasks and wait until they have ended."""
        self._closing = True
        current = asyncio.current_task()
        while pending := [task for task in self._tasks if task is not current]:
            for task in pending:
                task.cancel()
            # Not `gather`: from Python 3.12 on it does not yield to the loop for tasks that are
            # done, so their done callbacks, which remove them here, would never run.
            await asyncio.wait(pending)

    def _fatal_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.report(task.get_name(), error)

    def _quiet_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, InvariantViolated):
            self.report(task.get_name(), error)
