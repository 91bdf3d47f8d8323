"""KRaftVersionRecord, version 0."""

from __future__ import annotations

from protocol.schema import ControlRecord, field, int16


class KRaftVersionRecord(ControlRecord, control_type=5, versions="0", flexible="0+"):
    version: int = field(int16, "0+", default=0)
    kraft_version: int = field(int16, "0+", default=0)
