"""ControlRecordTypeSchema, version 0."""

from __future__ import annotations

from protocol.schema import Message, field, int16


class ControlRecordTypeSchema(Message, versions="0"):
    type: int = field(int16, "0+", default=0)
