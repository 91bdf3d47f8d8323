"""Shell: A helper process for CPU-heavy work, outside the event loop and the interpreter lock.

A thread that iterates over records holds the lock most of the time, and each request then waits for
it (5 ms per switch). A process costs a tenth of a second at its start and nothing afterwards. It is
started for the first task. It ends with `close`, or when its parent ends.

A task is a module-level function that takes one argument and yields results. Argument and results
are pickled; both ends are this program, on a private pipe. Only files that are really on the disk
are shared: work on anything else belongs on the event loop.

The helper runs at a lower priority than its parent: its work can wait, requests cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import pickle
import queue
import signal
import struct
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, BinaryIO, Final, TypeVar

A = TypeVar("A")
R = TypeVar("R")

NICENESS: Final = 10
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import runtime.helper as h; h.main()"
)
_length = struct.Struct(">I")
_ITEM, _END, _ERROR = 0, 1, 2


class HelperFailed(Exception):
    """The task raised an unexpected error, or the process ended."""


class HelperStopped(HelperFailed):
    """`stop` ended the process while the task ran."""


class HelperProcess:
    """At most one process, which runs one task at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._stopped = False
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The process ID of the running process, None without one."""
        return None if self._process is None else self._process.pid

    async def run(self, task: Callable[[A], Iterable[R]], argument: A) -> AsyncGenerator[R, None]:
        """Yield the results of `task(argument)` as they arrive.

        Raises:
            HelperFailed: the task failed or the process ended. The next run starts a new process.
            OSError: no process can be started.
        """
        self._stopped = False
        process = await self._start()
        assert process.stdin is not None and process.stdout is not None
        finished = False
        try:
            process.stdin.write(_frame((task.__module__, task.__qualname__, argument)))
            await process.stdin.drain()
            while True:
                kind, content = await _receive(process.stdout)
                if kind == _END:
                    finished = True
                    return
                if kind == _ERROR:
                    raise HelperFailed(content)
                yield content
        except (EOFError, ConnectionError):
            raise self._ended() from None
        finally:
            if not finished:
                # The caller stopped reading, so the task and its remaining results are useless.
                await self.close()

    def stop(self) -> None:
        """End the process at once; the `run` of a running task raises HelperStopped."""
        self._stopped = True
        self._kill()

    async def close(self) -> None:
        """End the process, if there is one, and wait until it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        self._kill(process)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        await process.stdout.read()
        await process.wait()

    def _ended(self) -> HelperFailed:
        if self._stopped:
            return HelperStopped("the helper process was stopped")
        return HelperFailed("the helper process ended in the middle of a task")

    def _kill(self, process: asyncio.subprocess.Process | None = None) -> None:
        process = process or self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def _start(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is not None:
            await self.close()
        if self._process is None:
            self.starts += 1
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-E", "-c", _START, json.dumps(sys.path),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
        return self._process


def _frame(content: Any) -> bytes:
    body = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return _length.pack(len(body)) + body


async def _receive(stream: asyncio.StreamReader) -> tuple[int, Any]:
    (size,) = _length.unpack(await stream.readexactly(_length.size))
    kind, content = pickle.loads(await stream.readexactly(size))
    return kind, content


# In the helper -------------------------------------------------------------------------------


def main() -> None:
    """Run tasks from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not corrupt the frames
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while True:
        module, name, argument = tasks.get()
        _do(module, name, argument, answers)


def _listen(tasks: queue.SimpleQueue[Any]) -> None:
    """Queue tasks; at the end of the pipe the parent has ended, so end a running task, too."""
    requests = sys.stdin.buffer
    while True:
        head = requests.read(_length.size)
        if len(head) < _length.size:
            os._exit(0)
        (size,) = _length.unpack(head)
        tasks.put(pickle.loads(requests.read(size)))


def _do(module: str, name: str, argument: Any, answers: BinaryIO) -> None:
    def answer(kind: int, content: Any) -> None:
        answers.write(_frame((kind, content)))
        answers.flush()

    try:
        for item in getattr(importlib.import_module(module), name)(argument):
            answer(_ITEM, item)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent must hear of it
        answer(_ERROR, f"{type(error).__name__}: {error}")
    else:
        answer(_END, None)
