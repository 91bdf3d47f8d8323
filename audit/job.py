"""The audit as a whole: plan, let Spark run the plan, merge, judge.

`run` is what the command, the chaos tests and spark-submit call. Nothing is shuffled: a task reads
an interval of the log and gives back what it found, which is little; the history table alone is as
long as the log, and each task writes its own part of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from audit.decoding.batches import Batch, walk
from audit.findings.sink import ELECTION, Event, Sink
from audit.planning.partitions import plan_partitions
from audit.reading.inputs import Inputs
from audit.reading.logs import MetadataLog
from audit.report.document import Ends, Merged
from audit.tasks.comparison import plan_comparisons
from audit.tasks.interval import Interval, plan_intervals, with_shards
from audit.tasks.work import Work, WorkOptions, perform

DEFAULT_ELECTIONS_MAX = 100_000
_POLL_S = 0.2

Progress: TypeAlias = Callable[[int, int], None]
"""Called with tasks done and tasks in all."""
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


def log_end(log: MetadataLog) -> Ends:
    """The end of a copy's last whole batch; that of its newest snapshot if there is none."""
    newest = max(log.snapshots, key=lambda s: s.end_offset, default=None)
    end = Ends(newest.end_offset, newest.epoch) if newest else Ends(0, -1)
    for segment in reversed(log.segments):
        for found in walk(segment.path):
            if isinstance(found, Batch) and found.crc_ok:
                header = found.header
                end = max(end, Ends(header.next_offset, header.leader_epoch))
        if end.end_offset > segment.base_offset:
            break
    return end


def choose_primary(logs: Sequence[MetadataLog], ends: dict[str, Ends]) -> MetadataLog:
    """The copy to audit: the one of the newest leader, as elections of the quorum judge it; of
    equals the one that reaches back farthest."""

    def rank(log: MetadataLog) -> tuple[int, int, int]:
        end = ends[log.name]
        return end.epoch, end.end_offset, -log.start_offset

    return max(sorted(logs, key=lambda log: log.path, reverse=True), key=rank)


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

    def execute(plan: Sequence[Work], options: WorkOptions) -> Iterator[Event]:
        with _watched(spark, len(plan), progress):
            yield from _on_spark(spark, plan, tables if options.history else None, options)

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
    min_isr: int = 1,
    elections_max: int = DEFAULT_ELECTIONS_MAX,
) -> Result:
    """The same audit in this process, without Spark and without tables: for tests that end with
    one, and for logs of a few minutes. Raises UnreadableInput."""

    def execute(plan: Sequence[Work], options: WorkOptions) -> Iterator[Event]:
        for work in plan:
            sink = Sink(options.elections_max)
            for _ in perform(work, options, sink):
                pass
            yield from sink.rows()

    options = WorkOptions(min_isr=min_isr, elections_max=elections_max)
    return _audit(inputs, execute, 1, options)


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
    return Result(result)


def _cut_short(plan: Sequence[Work], merged: Merged, share: int, elections_max: int) -> list[Work]:
    """Intervals with more elections than their share, if all together are not too many to list.

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


def _on_spark(
    spark: Any, plan: Sequence[Work], tables: Path | None, options: WorkOptions
) -> Iterator[Event]:
    from audit.spark.datasource import HISTORY, encode_plan

    frame = (
        spark.read.format("kraftaudit")
        .option("plan", encode_plan(plan))
        .option("history", str(options.history).lower())
        .option("partitions", str(options.partitions).lower())
        .option("min.isr", str(options.min_isr))
        .option("elections.max", str(options.elections_max))
        .load()
    )
    if tables is not None:
        raw = str(tables / "_all")
        frame.write.mode("overwrite").partitionBy("kind").parquet(raw)
        frame = spark.read.schema(frame.schema).parquet(raw)
    events = frame.where(frame.kind != HISTORY).select("kind", "offset", "timestamp_ms", "body")
    for batch in events.toArrow().to_batches():
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


@contextmanager
def _watched(spark: Any, tasks: int, progress: Progress | None) -> Iterator[None]:
    """Tell `progress` how many tasks are done while the block runs."""
    if progress is None:
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_S):
            stages = [tracker.getStageInfo(s) for s in tracker.getActiveStageIds()]
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            progress(done, tasks)

    watcher = threading.Thread(target=watch, name="audit-progress", daemon=True)
    watcher.start()
    try:
        yield
        progress(tasks, tasks)
    finally:
        ended.set()
        watcher.join()


def timed(spark: Any, inputs: Inputs, **more: Any) -> tuple[Result, float]:
    """`run` and the seconds it took."""
    begun = time.monotonic()
    result = run(inputs, spark, **more)
    return result, time.monotonic() - begun
