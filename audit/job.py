"""Shell: The whole audit: plan, execution, merge, checks of the whole.

The command, the chaos tests and spark-submit call `run`. Nothing is shuffled: a task returns the
findings of its part of the log, which are few. Only the history table is as long as the log, and
each task writes its own part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from audit.findings.sink import ELECTION, Event
from audit.inputs.metadata_log import MetadataLog
from audit.planning.copies import choose_primary, plan_comparisons
from audit.planning.intervals import Interval, plan_intervals, with_shards
from audit.planning.partitions import plan_partitions
from audit.reading.inputs import Inputs
from audit.reading.segments import log_end
from audit.report.document import Merged, Verdict
from audit.tasks.processes import on_processes
from audit.tasks.work import Progress, Work, WorkOptions

DEFAULT_ELECTIONS_MAX = 100_000

Execute: TypeAlias = Callable[[Sequence[Work], WorkOptions], Iterator[Event]]
"""Executes the work and yields its events, in any order."""


HOLDS, BROKEN, NOT_JUDGED, MAY_BE_LOST = 0, 1, 3, 4
_CODES = {
    Verdict.HOLDS: HOLDS,
    Verdict.BROKEN: BROKEN,
    Verdict.NOT_JUDGED: NOT_JUDGED,
    Verdict.MAY_BE_LOST: MAY_BE_LOST,
}


def exit_code(summary: Mapping[str, Any]) -> int:
    """Return the exit code for the summary of an audit that was possible."""
    return _CODES[Verdict(summary["verdict"])]


class Result:
    """The result of an audit. `data` is the JSON document of docs/audit.md."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @property
    def verdict(self) -> str:
        """`holds`, `may-be-lost`, `broken` or `not-judged`."""
        return str(self.data["summary"]["verdict"])

    @property
    def promises_hold(self) -> bool:
        return bool(self.data["summary"]["promises_hold"])

    @property
    def exit_code(self) -> int:
        """The exit code of the command: docs/audit.md has the meanings."""
        return exit_code(self.data["summary"])

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.data["findings"])

    @property
    def elections(self) -> list[dict[str, Any]]:
        return list(self.data["elections"])


def run(
    inputs: Inputs,
    spark: Any,
    *,
    tables: Path | None = None,
    progress: Progress | None = None,
    min_isr: int = 1,
    elections_max: int = DEFAULT_ELECTIONS_MAX,
) -> Result:
    """Audit the inputs of `audit.reading.inputs` on a Spark session of `audit.session`.

    tables: the folder to write the tables to. min_isr: `min.insync.replicas` for topics without a
    setting in the metadata log. Raises UnreadableInput for files that cannot be read.
    """
    from audit.spark.execution import on_spark  # Spark need not be installed for `run_here`

    def execute(plan: Sequence[Work], options: WorkOptions) -> Iterator[Event]:
        return on_spark(spark, plan, options, tables if options.history else None, progress)

    width = spark.sparkContext.defaultParallelism
    options = WorkOptions(history=tables is not None, min_isr=min_isr, elections_max=elections_max)
    result = _audit(inputs, execute, width, options)
    if tables is not None:
        from audit.spark.tables import write_tables

        write_tables(spark, result.data, tables)
    return result


def run_here(
    inputs: Inputs,
    *,
    progress: Progress | None = None,
    width: int = 1,
    processes: int = 1,
    min_isr: int = 1,
    elections_max: int = DEFAULT_ELECTIONS_MAX,
) -> Result:
    """Run the audit without Spark and tables: for tests, and for logs read before Spark would
    start.

    width: the processors of a Spark session that would give the same document. It determines the
    number of pieces of long intervals, and so the points at which the sizes over time are taken.
    processes: the number of worker processes, 1 for this one alone; the document is the same.
    Raises UnreadableInput.
    """

    def execute(plan: Sequence[Work], options: WorkOptions) -> Iterator[Event]:
        return on_processes(plan, options, processes, progress)

    options = WorkOptions(min_isr=min_isr, elections_max=elections_max)
    return _audit(inputs, execute, width, options)


def _audit(inputs: Inputs, execute: Execute, width: int, options: WorkOptions) -> Result:
    logs = _named(inputs.logs)
    has_data = bool(inputs.replicas)
    ends = {log.name: log_end(log) for log in logs}
    primary = choose_primary(logs, ends)
    others = [log for log in logs if log is not primary]
    plan: list[Work] = list(with_shards(plan_intervals(primary, others), width))
    plan += plan_comparisons(primary, others)
    merged = Merged(primary, logs, ends)
    share = options._replace(
        partitions=has_data, elections_max=options.elections_max // len(plan) + 1
    )
    merged.add(execute(plan, share))
    again = _cut_short(plan, merged, share.elections_max, options.elections_max)
    if again:
        merged.add(
            row for row in execute(again, options._replace(history=False)) if row[0] == ELECTION
        )
    result = merged.result(options.elections_max)
    if has_data:
        partitions = plan_partitions(inputs.replicas, inputs.sent, result)
        merged.add(execute(partitions, options._replace(history=False)))
        result = merged.result(options.elections_max)
    last_ms = result["summary"]["last_timestamp_ms"]
    result["faults"] = [
        [kind, nodes, begin_ms, end_ms if end_ms >= 0 else max(begin_ms, last_ms), detail]
        for kind, nodes, begin_ms, end_ms, detail in inputs.faults
    ]
    return Result(result)


def _cut_short(plan: Sequence[Work], merged: Merged, share: int, elections_max: int) -> list[Work]:
    """Return the work on intervals with too many elections, if all elections can be listed.

    Elections come in bursts. A share per interval keeps the results of tasks small, and the few
    intervals with more elections are audited again.
    """
    if merged.elections_counted() > elections_max:
        return []
    busy = merged.intervals_above(share)
    return [
        work for work in plan if isinstance(work, Interval) and (work.number, work.shard) in busy
    ]


def _named(logs: Sequence[MetadataLog]) -> list[MetadataLog]:
    """Return logs with unique names: two copies of one node are named by their paths."""
    names = [log.name for log in logs]
    return [log._replace(node_id=None) if names.count(log.name) > 1 else log for log in logs]
