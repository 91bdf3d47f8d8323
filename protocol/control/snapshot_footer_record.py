"""SnapshotFooterRecord, version 0."""

from __future__ import annotations

from protocol.schema import ControlRecord, field, int16


class SnapshotFooterRecord(ControlRecord, control_type=4, versions="0", flexible="0+"):
    version: int = field(int16, "0+", default=0)
