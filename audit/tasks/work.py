"""Work of an audit: one piece of it, executed in a Spark task or in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from audit.findings.sink import Sink
from audit.planning.copies import Comparison
from audit.planning.intervals import Interval
from audit.planning.partitions import PartitionWork
from audit.tasks.comparison import compare
from audit.tasks.interval import IntervalAudit
from audit.tasks.partition import audit_partition

Work: TypeAlias = Interval | Comparison | PartitionWork
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished tasks and of all tasks."""


class WorkOptions(NamedTuple):
    """Options of the work.

    history: write a row per partition record. partitions: list the partitions at the end. min_isr:
    the value for topics without one in the log. elections_max: clean elections kept per piece.
    """

    history: bool = False
    partitions: bool = False
    min_isr: int = 1
    elections_max: int = 100_000


def perform(work: Work, options: WorkOptions, sink: Sink) -> Iterator[None]:
    """Execute a piece of work in steps, so that the caller can take history rows away in
    between.
    """
    if isinstance(work, Interval):
        yield from IntervalAudit(
            work,
            sink,
            default_min_isr=options.min_isr,
            history=options.history,
            partitions=options.partitions,
        ).steps()
    elif isinstance(work, Comparison):
        compare(work, sink)
    else:
        audit_partition(work, sink)
