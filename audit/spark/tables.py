"""The tables of an audit: Parquet, or Delta in a session with Delta (docs/audit.md).

`partition_history` and `leadership` are as long as the log. Spark makes them from the tasks' rows,
without the driver. The others are short and come from the result.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit.spark import delta

BROKERS = (
    "broker int, rack string, offset bigint, timestamp_ms bigint, event string, epoch bigint, "
    "fenced boolean"
)
QUORUM = "epoch int, leader int, offset bigint, timestamp_ms bigint"
SETTINGS = (
    "offset bigint, timestamp_ms bigint, kind string, resource string, name string, "
    "before string, after string"
)
REASSIGNMENTS = (
    "offset bigint, timestamp_ms bigint, topic string, partition int, step string, "
    "replicas array<int>, adding array<int>, removing array<int>"
)
ELECTIONS = (
    "offset bigint, timestamp_ms bigint, topic string, partition int, kind string, "
    "from_leader int, to_leader int, leader_epoch int, cause string, passed_over array<int>"
)
FINDINGS = (
    "check string, severity string, offset bigint, timestamp_ms bigint, message string, "
    "before string, after string, topic string, partition int, log string"
)

LEADERSHIP_SQL = """
SELECT topic, partition, leader, leader_epoch, offset AS from_offset,
       timestamp_ms AS from_timestamp_ms,
       lead(offset) OVER w AS until_offset, lead(timestamp_ms) OVER w AS until_timestamp_ms
FROM (
  SELECT *, lag(leader_epoch) OVER (PARTITION BY topic_id, partition ORDER BY offset) AS before
  FROM history
)
WHERE before IS NULL OR before <> leader_epoch
WINDOW w AS (PARTITION BY topic_id, partition ORDER BY offset)
"""


def write_tables(spark: Any, result: Mapping[str, Any], folder: Path) -> None:
    """Write all tables below `folder`; `_all` in it has the rows of the job."""
    form = "delta" if delta.is_on(spark) else "parquet"

    def save(frame: Any, name: str) -> None:
        # A table of an earlier audit may have other columns, or the other format.
        shutil.rmtree(folder / name, ignore_errors=True)
        frame.write.format(form).save(str(folder / name))

    history = spark.read.parquet(str(folder / "_all" / "kind=history")) if _has(folder) else None
    if history is not None:
        history = history.drop("body", "kind")
        save(history, "partition_history")
        history.createOrReplaceTempView("history")
        save(spark.sql(LEADERSHIP_SQL), "leadership")
        spark.catalog.dropTempView("history")
    for name, (schema, rows) in small_tables(result).items():
        save(spark.createDataFrame(rows, schema).coalesce(1), name)
    shutil.rmtree(folder / "_all")


def _has(folder: Path) -> bool:
    return (folder / "_all" / "kind=history").is_dir()


def small_tables(result: Mapping[str, Any]) -> dict[str, tuple[str, list[tuple[Any, ...]]]]:
    """Return schema and rows by table name."""
    events = [
        (b["id"], b["rack"], e["offset"], e["timestamp_ms"], e["event"], e["epoch"], e["fenced"])
        for b in result["brokers"]
        for e in b["events"]
    ]
    return {
        "elections": (ELECTIONS, _rows(result["elections"], ELECTIONS)),
        "brokers": (BROKERS, events),
        "quorum": (QUORUM, _rows(result["quorum"]["leaders"], QUORUM)),
        "settings": (SETTINGS, _rows(result["settings"], SETTINGS)),
        "reassignments": (REASSIGNMENTS, _rows(result["reassignments"], REASSIGNMENTS)),
        "findings": (FINDINGS, _rows(result["findings"], FINDINGS)),
    }


def _rows(items: list[dict[str, Any]], schema: str) -> list[tuple[Any, ...]]:
    columns = [part.strip().split(" ") for part in schema.split(", ")]
    return [tuple(_value(item.get(name), kind) for name, kind in columns) for item in items]


def _value(value: Any, kind: str) -> Any:
    if kind == "string" and value is not None and not isinstance(value, str):
        from audit.decoding.records import dumps

        return dumps(value)
    return value
