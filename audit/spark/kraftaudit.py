"""The data source `kraftaudit`: the events of the pieces of an audit's work.

It is for the audit's own job. One Spark task executes one piece of work.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
)

from audit.findings.sink import HistoryRow, Sink
from audit.tasks.work import Work, WorkOptions, perform

AUDIT_DDL = (
    "kind string, offset bigint, timestamp_ms bigint, body string, topic string, "
    "topic_id binary, partition int, record string, leader int, leader_epoch int, "
    "partition_epoch int, replicas array<int>, isr array<int>, elr array<int>, "
    "last_known_elr array<int>, adding array<int>, removing array<int>, recovering boolean, "
    "election_kind string, election_cause string, election_reason string, "
    "passed_over array<int>, local_logs array<struct<broker: int, broker_epoch: bigint, "
    "span_ms: bigint, size_bytes: bigint, reported_ms: bigint, enough: boolean, verdict: string>>"
)
_INTS = pa.list_(pa.int32())
_LOCAL_LOG = pa.struct(
    [
        ("broker", pa.int32()),
        ("broker_epoch", pa.int64()),
        ("span_ms", pa.int64()),
        ("size_bytes", pa.int64()),
        ("reported_ms", pa.int64()),
        ("enough", pa.bool_()),
        ("verdict", pa.string()),
    ]
)
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
        ("election_reason", pa.string()),
        ("passed_over", _INTS),
        ("local_logs", pa.list_(_LOCAL_LOG)),
    ]
)
HISTORY = "history"


class WorkPartition(InputPartition):
    """One interval or shard, the same offsets of all copies, or one partition's data."""

    def __init__(self, work: Work) -> None:
        self.work = work


def encode_plan(plan: Sequence[Work], options: WorkOptions) -> str:
    """Encode the work and its options as text, the type of a data source's option."""
    return base64.b64encode(pickle.dumps((list(plan), options))).decode()


class KraftAudit(DataSource):
    """The data source; its only option is `plan`, from `encode_plan`."""

    @classmethod
    def name(cls) -> str:
        return "kraftaudit"

    def schema(self) -> str:
        return AUDIT_DDL

    def reader(self, schema: Any) -> KraftAuditReader:
        return KraftAuditReader(dict(self.options))


class KraftAuditReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._plan: list[Work]
        self._options: WorkOptions
        self._plan, self._options = pickle.loads(base64.b64decode(options["plan"]))

    def partitions(self) -> Sequence[WorkPartition]:
        return [WorkPartition(work) for work in self._plan]

    def read(self, partition: WorkPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, WorkPartition):
            return  # Spark's own partition without a value, for an empty plan
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
