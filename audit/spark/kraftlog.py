"""The data source `kraftlog`: records of metadata logs as rows, batch or streaming.

docs/audit.md has the schema and the options.
"""

from __future__ import annotations

import json
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

from audit.inputs.metadata_log import FileRange
from audit.reading.following import between, end_of
from audit.reading.logs import find_logs
from audit.reading.ranges import SPLIT_BYTES, plan_ranges
from audit.spark.rows import SCHEMA_DDL, RowReader

PATHS_SEPARATOR = ","


class UnknownOption(ValueError):
    """The data source does not have this option, or its value is invalid."""


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = str(options.get(name, default)).lower()
    if text not in ("true", "false"):
        raise UnknownOption(f"option {name} is true or false, not {text!r}")
    return text == "true"


def _paths(options: Mapping[str, str]) -> list[Path]:
    """Return the paths of `load(path)`; Spark passes several as a JSON list in `paths`."""
    given = options.get("paths") or options.get("path")
    if not given:
        raise UnknownOption("kraftlog needs a path: a __cluster_metadata-0 directory or one above")
    if given.startswith("["):
        return [Path(p) for p in json.loads(given)]
    return [Path(p) for p in given.split(PATHS_SEPARATOR)]


class RangePartition(InputPartition):
    """A range of a file."""

    def __init__(self, part: FileRange) -> None:
        self.part = part


class KraftLog(DataSource):
    """The data source, for `spark.read.format("kraftlog").load(path)`.

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
    """The options and the reading of a range, shared by batch and streaming readers."""

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
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's own partition without a value, for no ranges
        return RowReader(fields=self._fields, raw=self._raw).read(partition.part)


class KraftLogReader(_Reading, DataSourceReader):
    def partitions(self) -> Sequence[RangePartition]:
        return [
            RangePartition(part)
            for log in find_logs(self._paths)
            for part in plan_ranges(log, snapshots=self._snapshots, split_bytes=self._split_bytes)
        ]


class KraftLogStreamReader(_Reading, DataSourceStreamReader):
    """Follows growing logs.

    A stream offset is a `ReadPosition` per log. Snapshot files are not streamed, because a log's
    records contain the same. A log that is missing for a while is continued later.
    """

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
