"""Execution of an audit's work by several processes of this machine, without Spark."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from audit.findings.sink import Event, Sink
from audit.tasks.work import Progress, Work, WorkOptions, perform

ALONE_BYTES_MAX = 8 << 20
"""An input of this size is read before another process has started."""


def performed(work: Work, options: WorkOptions) -> list[Event]:
    """Execute one piece of work and return its events. Raises UnreadableInput."""
    sink = Sink(options.elections_max)
    for _ in perform(work, options, sink):
        pass
    return list(sink.rows())


def on_processes(
    plan: Sequence[Work], options: WorkOptions, processes: int, progress: Progress | None
) -> Iterator[Event]:
    """Execute the work in up to `processes` processes; yield its events in any order.

    They are spawned, not forked, because the caller may have threads. Raises UnreadableInput, and
    OSError if the system kills one of them.
    """
    if min(processes, len(plan)) < 2:
        yield from _in_turn(plan, options, progress)
        return
    with ProcessPoolExecutor(
        min(processes, len(plan)), get_context("spawn"), initializer=_leave_ctrl_c_to_the_parent
    ) as pool:
        left = {pool.submit(performed, work, options) for work in plan}
        try:
            for future in as_completed(set(left)):
                left.discard(future)
                rows = _rows_of(future)
                if progress is not None:
                    progress(len(plan) - len(left), len(plan))
                yield from rows
        finally:
            for future in left:
                future.cancel()


def _in_turn(
    plan: Sequence[Work], options: WorkOptions, progress: Progress | None
) -> Iterator[Event]:
    for number, work in enumerate(plan, start=1):
        rows = performed(work, options)
        if progress is not None:
            progress(number, len(plan))
        yield from rows


def _rows_of(future: Future[list[Event]]) -> list[Event]:
    try:
        return future.result()
    except BrokenProcessPool:
        raise OSError("an audit process was killed, perhaps by the out-of-memory killer") from None


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
