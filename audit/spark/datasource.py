"""The Python data sources: `kraftlog` for everybody, `kraftaudit` for the audit's own job.

`kraftlog` gives the records of metadata logs as rows, batch or streaming (docs/audit.md has the
schema and the options). `kraftaudit` runs one interval of the log per task and gives what it found;
its plan is made by `audit.job`.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from audit.findings.sink import HistoryRow, Sink
from audit.reading.following import between, end_of
from audit.reading.logs import FileRange, find_logs
from audit.reading.ranges import SPLIT_BYTES, plan_ranges
from audit.spark.rows import SCHEMA_DDL, RowReader
from audit.tasks.work import Work, WorkOptions, perform

PATHS_SEPARATOR = ","


class UnknownOption(ValueError):
    """An option that the data source does not have, or a value it cannot use."""


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = str(options.get(name, default)).lower()
    if text not in ("true", "false"):
        raise UnknownOption(f"option {name} is true or false, not {text!r}")
    return text == "true"


def _paths(options: Mapping[str, str]) -> list[Path]:
    """`load(path)`; Spark gives several as a JSON list in `paths`."""
    given = options.get("paths") or options.get("path")
    if not given:
        raise UnknownOption("kraftlog needs a path: a __cluster_metadata-0 directory or one above")
    if given.startswith("["):
        import json

        return [Path(p) for p in json.loads(given)]
    return [Path(p) for p in given.split(PATHS_SEPARATOR)]


class RangePartition(InputPartition):
    """A range of a file."""

    def __init__(self, part: FileRange) -> None:
        self.part = part


class KraftLog(DataSource):
    """`spark.read.format("kraftlog").load(path)`.

    Options: `snapshots` (false) adds the records of snapshot files; `fields` (true) the records as
    JSON; `raw` (false) keys and values as bytes; `split.bytes` the size of a task's share.
    """

    @classmethod
    def name(cls) -> str:
        return "kraftlog"

    def schema(self) -> str:
        return SCHEMA_DDL

    def reader(self, schema: Any) -> KraftLogReader:
        return KraftLogReader(dict(self.options))

    def streamReader(self, schema: Any) -> KraftLogStreamReader:
        return KraftLogStreamReader(dict(self.options))


class _Reading:
    """What batch and streaming readers share."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._paths = _paths(options)
        self._fields = _flag(options, "fields", True)
        self._raw = _flag(options, "raw", False)
        self._snapshots = _flag(options, "snapshots", False)
        split = str(options.get("split.bytes", SPLIT_BYTES))
        self._split_bytes = int(split) if split.isdecimal() else 0
        if self._split_bytes <= 0:
            raise UnknownOption(f"option split.bytes is a number above 0, not {split!r}")

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return RowReader(fields=self._fields, raw=self._raw).read(partition.part)


class KraftLogReader(_Reading, DataSourceReader):
    def partitions(self) -> Sequence[RangePartition]:
        return [
            RangePartition(part)
            for log in find_logs(self._paths)
            for part in plan_ranges(log, snapshots=self._snapshots, split_bytes=self._split_bytes)
        ]


class KraftLogStreamReader(_Reading, DataSourceStreamReader):
    """Follows growing logs. A stream offset is a `Place` per log; snapshot files are not streamed,
    because a log's records say the same. A log that is missing for a while is gone on with."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        if self._snapshots:
            raise UnknownOption("option snapshots is for batch reads: a stream reads the log only")

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        ends = {
            log.path: end_of(log, start.get(log.path))
            for log in find_logs(self._paths)
            if log.segments
        }
        return {**start, **ends}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        logs = {log.path: log for log in find_logs(self._paths)}
        return [
            RangePartition(part)
            for path, stop in end.items()
            if path in logs
            for part in between(logs[path], start.get(path), stop)
        ]


# --- the audit's job ---------------------------------------------------------------------------

AUDIT_DDL = (
    "kind string, offset bigint, timestamp_ms bigint, body string, topic string, "
    "topic_id binary, partition int, record string, leader int, leader_epoch int, "
    "partition_epoch int, replicas array<int>, isr array<int>, elr array<int>, "
    "last_known_elr array<int>, adding array<int>, removing array<int>, recovering boolean, "
    "election_kind string, election_cause string"
)
_INTS = pa.list_(pa.int32())
AUDIT_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("body", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.binary()),
        ("partition", pa.int32()),
        ("record", pa.string()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("partition_epoch", pa.int32()),
        ("replicas", _INTS),
        ("isr", _INTS),
        ("elr", _INTS),
        ("last_known_elr", _INTS),
        ("adding", _INTS),
        ("removing", _INTS),
        ("recovering", pa.bool_()),
        ("election_kind", pa.string()),
        ("election_cause", pa.string()),
    ]
)
HISTORY = "history"


class WorkPartition(InputPartition):
    """One interval, one shard of one, the same offsets of all copies, or one partition's data."""

    def __init__(self, work: Work) -> None:
        self.work = work


def encode_plan(plan: Sequence[Work]) -> str:
    return base64.b64encode(pickle.dumps(list(plan))).decode()


class KraftAudit(DataSource):
    """Options: `plan` (of `encode_plan`), `history`, `partitions`, `min.isr`, `elections.max`."""

    @classmethod
    def name(cls) -> str:
        return "kraftaudit"

    def schema(self) -> str:
        return AUDIT_DDL

    def reader(self, schema: Any) -> KraftAuditReader:
        return KraftAuditReader(dict(self.options))


class KraftAuditReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._plan: list[Work] = pickle.loads(base64.b64decode(options["plan"]))
        self._options = WorkOptions(
            history=_flag(options, "history", False),
            partitions=_flag(options, "partitions", False),
            min_isr=int(options.get("min.isr", "1")),
            elections_max=int(options.get("elections.max", "100000")),
        )

    def partitions(self) -> Sequence[WorkPartition]:
        return [WorkPartition(work) for work in self._plan]

    def read(self, partition: WorkPartition) -> Iterator[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        sink = Sink(self._options.elections_max, lambda rows: batches.append(_history_batch(rows)))
        for _ in perform(partition.work, self._options, sink):
            yield from batches
            batches.clear()
        yield from batches
        events = list(sink.rows())
        if events:
            yield _event_batch(events)


def _history_batch(rows: Sequence[HistoryRow]) -> pa.RecordBatch:
    columns = dict(zip(HistoryRow._fields, zip(*rows, strict=True), strict=True))
    columns["kind"] = (HISTORY,) * len(rows)
    return _batch(columns, len(rows))


def _event_batch(events: Sequence[Any]) -> pa.RecordBatch:
    names = ("kind", "offset", "timestamp_ms", "body")
    columns = dict(zip(names, zip(*events, strict=True), strict=True))
    return _batch(columns, len(events))


def _batch(columns: Mapping[str, Any], size: int) -> pa.RecordBatch:
    arrays = [
        pa.array(columns[field.name], type=field.type)
        if field.name in columns
        else pa.nulls(size, field.type)
        for field in AUDIT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=AUDIT_SCHEMA)
