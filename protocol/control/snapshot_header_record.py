"""SnapshotHeaderRecord, version 0."""

from __future__ import annotations

from protocol.schema import ControlRecord, field, int16, int64


class SnapshotHeaderRecord(ControlRecord, control_type=3, versions="0", flexible="0+"):
    version: int = field(int16, "0+", default=0)
    last_contained_log_timestamp: int = field(int64, "0+", default=0)
