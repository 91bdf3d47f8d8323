"""The cleaner's metric families, named as Strimzi's JMX rules name Kafka's MBeans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.metrics import Family
from storage.log.cleaning.job import Finished

_CLEANER = "kafka_log_logcleaner_"
_MANAGER = "kafka_log_logcleanermanager_"


@dataclass(slots=True)
class CleanerFigures:
    """Figures of all rounds so far; figures of a single round are those of the last one."""

    dirtiest_ratio: float = 0.0
    max_delay_ms: float = 0.0
    last_run_ms: int | None = None
    recopy_ratio: float = 0.0
    map_utilization: float = 0.0
    took_ms: float = 0.0
    rounds: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_removed: int = 0

    def finished(self, done: Finished, took_ms: float) -> None:
        """Record the result of a finished round."""
        self.recopy_ratio = done.bytes_written / done.bytes_read if done.bytes_read else 0.0
        self.map_utilization = done.map_utilization
        self.took_ms = took_ms
        self.rounds += 1
        self.bytes_read += done.bytes_read
        self.bytes_written += done.bytes_written
        self.records_removed += done.rewrite.records_read - done.rewrite.records_kept


def families(
    figures: CleanerFigures,
    *,
    now_ms: int,
    directory: str,
    uncleanable: int,
    uncleanable_bytes: int,
) -> Iterator[Family]:
    """Yield all metrics of one cleaner."""
    idle_ms = 0 if figures.last_run_ms is None else now_ms - figures.last_run_ms
    gauges = (
        (
            f"{_CLEANER}cleaner_recopy_percent",
            "Bytes that stayed, of those that the last round read",
            100 * figures.recopy_ratio,
        ),
        (
            f"{_CLEANER}max_buffer_utilization_percent",
            "Share of log.cleaner.dedupe.buffer.size that the last round used",
            100 * figures.map_utilization,
        ),
        (
            f"{_CLEANER}max_clean_time_secs",
            "How long the last round took",
            figures.took_ms / 1000,
        ),
        (
            f"{_CLEANER}max_compaction_delay_secs",
            "How far the most overdue log exceeds max.compaction.lag.ms",
            figures.max_delay_ms / 1000,
        ),
        (f"{_CLEANER}deadthreadcount", "Cleaners that ended with an error: the node would", 0),
        (
            f"{_MANAGER}max_dirty_percent",
            "Dirty bytes of the dirtiest log",
            100 * figures.dirtiest_ratio,
        ),
        (
            f"{_MANAGER}time_since_last_run_ms",
            "Time since the cleaner last examined the logs",
            idle_ms,
        ),
    )
    for name, help_text, value in gauges:
        yield Family(name, help_text, "gauge", [({}, float(value))])
    label = {"logDirectory": directory}
    yield Family(
        f"{_MANAGER}uncleanable_partitions_count",
        "Logs that the cleaner cannot clean",
        "gauge",
        [(label, float(uncleanable))],
    )
    yield Family(
        f"{_MANAGER}uncleanable_bytes",
        "Their bytes that wait for cleaning",
        "gauge",
        [(label, float(uncleanable_bytes))],
    )
    counters = (
        ("rounds", "Rounds of cleaning", figures.rounds),
        ("read_bytes", "Bytes that rounds read", figures.bytes_read),
        ("kept_bytes", "Bytes that rounds wrote", figures.bytes_written),
        ("removed_records", "Records that rounds removed", figures.records_removed),
    )
    for name, help_text, value in counters:
        yield Family(f"kraftbox_cleaner_{name}_total", help_text, "counter", [({}, float(value))])
