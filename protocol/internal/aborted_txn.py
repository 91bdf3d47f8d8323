"""AbortedTxn, version 0."""

from __future__ import annotations

from protocol.schema import Message, field, int64


class AbortedTxn(Message, versions="0"):
    producer_id: int = field(int64, "0+", default=0)
    first_offset: int = field(int64, "0+", default=0)
    last_offset: int = field(int64, "0+", default=0)
    last_stable_offset: int = field(int64, "0+", default=0)
