"""The records of a metadata log as rows of Arrow columns, for `kraftlog` (docs/audit.md).

There is one row per record. A batch that is damaged or cannot be decoded gives one row with the
reason, and so do bytes that are not a batch; nothing in a file is skipped silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from audit.decoding.batches import Batch, Damage, split
from audit.decoding.records import JsonCache, dumps
from audit.inputs.metadata_log import FileRange
from audit.reading.segments import walk
from protocol.batch.control import read_control_type
from protocol.control import decode_control_value
from protocol.errors import ApiError, ProtocolError
from protocol.json_form import to_json

ROWS_PER_BATCH = 16_384

SCHEMA_DDL = (
    "log string, node int, file string, snapshot_offset bigint, batch_position bigint, "
    "batch_offset bigint, batch_bytes int, offset bigint, epoch int, timestamp_ms bigint, "
    "crc_ok boolean, control boolean, type string, version int, fields string, error string, "
    "key binary, value binary"
)

ARROW_SCHEMA = pa.schema(
    [
        ("log", pa.string()),
        ("node", pa.int32()),
        ("file", pa.string()),
        ("snapshot_offset", pa.int64()),
        ("batch_position", pa.int64()),
        ("batch_offset", pa.int64()),
        ("batch_bytes", pa.int32()),
        ("offset", pa.int64()),
        ("epoch", pa.int32()),
        ("timestamp_ms", pa.int64()),
        ("crc_ok", pa.bool_()),
        ("control", pa.bool_()),
        ("type", pa.string()),
        ("version", pa.int32()),
        ("fields", pa.string()),
        ("error", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


class RowReader:
    """Reads ranges into Arrow batches. `fields` and `raw` select the expensive columns."""

    def __init__(self, *, fields: bool = True, raw: bool = False) -> None:
        self._fields = fields
        self._raw = raw
        self._json = JsonCache()

    def read(self, part: FileRange) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = []
        for found in walk(part.path, part.start, part.end):
            if isinstance(found, Batch) and _outside(found, part):
                continue
            rows += self._rows(part, found)
            if len(rows) >= ROWS_PER_BATCH:
                yield _arrow(rows)
                rows = []
        if rows:
            yield _arrow(rows)

    def _rows(self, part: FileRange, found: Batch | Damage) -> Iterator[tuple[Any, ...]]:
        head = (part.log, part.node, part.path, part.snapshot_offset, found.position)
        if isinstance(found, Damage):
            error = f"{found.kind}: {found.size_bytes} bytes are no whole batch"
            empty = (None,) * 6
            yield (*head, None, found.size_bytes, *empty, None, None, error, None, None)
            return
        header = found.header
        place = (*head, header.base_offset, header.size_bytes)
        if not found.crc_ok:
            yield self._broken(place, header, "the CRC does not fit", crc_ok=False)
            return
        try:
            rows = split(found)
        except (ProtocolError, ApiError) as error:
            yield self._broken(place, header, str(error), crc_ok=True)
            return
        control = header.is_control
        for offset, timestamp, key, value in rows:
            name, version, fields, error_text = self._content(control, key, value or b"")
            yield (
                *place,
                offset,
                header.leader_epoch,
                timestamp,
                True,
                control,
                name,
                version,
                fields,
                error_text,
                key if self._raw else None,
                value if self._raw else None,
            )

    @staticmethod
    def _broken(place: Any, header: Any, error: str, *, crc_ok: bool) -> tuple[Any, ...]:
        facts = (header.base_offset, header.leader_epoch, header.max_timestamp, crc_ok)
        return (*place, *facts, header.is_control, None, None, None, error, None, None)

    def _content(
        self, control: bool, key: bytes | None, value: bytes
    ) -> tuple[str | None, int | None, str | None, str | None]:
        try:
            if control:
                record = decode_control_value(read_control_type(key), value)
                text = dumps(to_json(record, 0)) if self._fields else None
                return type(record).__name__, 0, text, None
            name, version, text = self._json.decode(value)
            return name, version, text if self._fields else None, None
        except ProtocolError as error:
            return None, None, None, str(error)


def _outside(batch: Batch, part: FileRange) -> bool:
    base = batch.header.base_offset
    if part.from_offset is not None and base < part.from_offset:
        return True
    return part.below_offset is not None and base >= part.below_offset


def _arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
