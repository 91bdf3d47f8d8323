"""Execution of an audit's work by Spark, with its progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from audit.findings.sink import Event
from audit.spark.kraftaudit import HISTORY, encode_plan
from audit.tasks.work import Progress, Work, WorkOptions

_POLL_S = 0.2


def on_spark(
    spark: Any,
    plan: Sequence[Work],
    options: WorkOptions,
    tables: Path | None,
    progress: Progress | None,
) -> Iterator[Event]:
    """Execute the work, one task per piece; yield its events, except for the history.

    tables: the folder for all rows, including the history.
    """
    with _watched(spark, len(plan), progress):
        frame = spark.read.format("kraftaudit").option("plan", encode_plan(plan, options)).load()
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
    """Report the number of finished tasks to `progress` while the block runs."""
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
