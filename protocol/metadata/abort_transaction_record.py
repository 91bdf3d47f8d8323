"""AbortTransactionRecord (record type 25), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, string


class AbortTransactionRecord(MetadataRecord, record_type=25, versions="0", flexible="0+"):
    reason: str | None = field(string, "0+", nullable="0+", tag=0, default=None)
