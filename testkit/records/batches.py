"""Batches and helpers that the tests of `protocol.batch` share."""

from __future__ import annotations

from typing import Any

from protocol.batch import Record, build_batch
from protocol.batch.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
    write_crc,
)

NOW_MS = 1_700_000_000_000

FIELDS = (
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


def some_records(count: int = 3) -> list[Record]:
    return [
        Record(timestamp=NOW_MS + n, key=b"k%d" % n, value=b"value %d" % n) for n in range(count)
    ]


def altered(batch: bytes, *, fix_crc: bool = True, **fields: int) -> bytes:
    """Return the batch with other header fields, by default with a CRC that fits them."""
    header = parse_header(batch)
    values = dict(zip(FIELDS, header.fields(), strict=True)) | fields
    out = bytearray(batch)
    HEADER.pack_into(out, 0, *(values[name] for name in FIELDS))
    if fix_crc:
        write_crc(out, 0, len(out))
    return bytes(out)


def with_payload(payload: bytes, count: int, **fields: Any) -> bytes:
    """Return a batch whose records are these raw bytes."""
    batch = build_batch(some_records(1))[:HEADER_BYTES] + payload
    fields.setdefault("record_count", count)
    fields.setdefault("last_offset_delta", count - 1)
    return altered(
        batch,
        batch_length=HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(payload),
        **fields,
    )


def header_of(batch: bytes) -> BatchHeader:
    return parse_header(batch)
