"""Shell: the audit as a whole: plan, have the plan done, merge, judge.

`run` is what the command, the chaos tests and spark-submit call. Nothing is shuffled: a task
returns what it found in its part of the log, which is little. Only the history table is as long as
the log, and each task writes its own part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from audit.findings.sink import ELECTION, Event
from audit.inputs.metadata_log import MetadataLog
from audit.planning.copies import choose_primary, plan_comparisons
from audit.planning.intervals import Interval, plan_intervals, with_shards
from audit.planning.partitions import plan_partitions
from audit.reading.inputs import Inputs
from audit.reading.segments import log_end
from audit.report.document import Merged
from audit.tasks.processes import on_processes
from audit.tasks.work import Progress, Work, WorkOptions

DEFAULT_ELECTIONS_MAX = 100_000

Execute: TypeAlias = Callable[[Sequence[Work], WorkOptions], Iterator[Event]]
"""Does the work, somewhere, and gives what was found, in any order."""


class Result:
    """What an audit found. `data` is the JSON document of docs/audit.md."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @property
    def promises_hold(self) -> bool:
        return bool(self.data["summary"]["promises_hold"])

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
    """Audit what `audit.reading.inputs` found on a session of `audit.session`.

    tables: where the tables are written. min_isr: `min.insync.replicas` where the metadata log does
    not say it. Raises UnreadableInput for what cannot be read.
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
    """The same audit without Spark and without tables: for tests that end with one, and for logs
    that are read before Spark has started.

    width: the processors of the session that gives the same document. It says into how many pieces
    long intervals are cut, and so at which points the sizes over time are taken. processes: how
    many work, 1 is this one alone; the document is the same. Raises UnreadableInput.
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
    result["faults"] = list(inputs.faults)
    return Result(result)


def _cut_short(plan: Sequence[Work], merged: Merged, share: int, elections_max: int) -> list[Work]:
    """The work on intervals with more elections than their share, if all together can be listed.

    Elections come in bursts; a share for each interval keeps what tasks return small, and the few
    that had more are done once more.
    """
    if merged.elections_counted() > elections_max:
        return []
    busy = merged.intervals_above(share)
    return [
        work for work in plan if isinstance(work, Interval) and (work.number, work.shard) in busy
    ]


def _named(logs: Sequence[MetadataLog]) -> list[MetadataLog]:
    """Logs with one name each: two copies of one node are told apart by their paths."""
    names = [log.name for log in logs]
    return [log._replace(node_id=None) if names.count(log.name) > 1 else log for log in logs]
