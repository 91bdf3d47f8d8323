"""Record batches of magic 2: header, records, control records, validation (KIP-98)."""

from __future__ import annotations

from protocol.batch.control import (
    ControlType,
    build_control_batch,
    build_end_txn_marker,
    control_key,
    read_control_type,
    read_end_txn_marker,
)
from protocol.batch.header import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    crc_of,
    crc_ok,
    iter_batches,
    iter_checked,
    parse_header,
    patch,
    set_log_append_time,
    whole_batches_size,
    write_crc,
)
from protocol.batch.records import (
    NO_PRODUCER,
    InvalidRecord,
    Producer,
    Record,
    build_batch,
    read_batch,
    read_records,
    rebuild_batch,
)

__all__ = [
    "HEADER_BYTES",
    "NO_PRODUCER",
    "BatchHeader",
    "ControlType",
    "CorruptBatch",
    "InvalidRecord",
    "Producer",
    "Record",
    "TimestampType",
    "build_batch",
    "build_control_batch",
    "build_end_txn_marker",
    "control_key",
    "crc_of",
    "crc_ok",
    "iter_batches",
    "iter_checked",
    "parse_header",
    "patch",
    "read_batch",
    "read_control_type",
    "read_end_txn_marker",
    "read_records",
    "rebuild_batch",
    "set_log_append_time",
    "whole_batches_size",
    "write_crc",
]
