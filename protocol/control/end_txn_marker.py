"""EndTxnMarker, version 0."""

from __future__ import annotations

from protocol.schema import ControlRecord, field, int32


class EndTxnMarker(ControlRecord, versions="0"):
    coordinator_epoch: int = field(int32, "0+", default=0)
