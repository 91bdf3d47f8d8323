"""BeginTransactionRecord (record type 23), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, string


class BeginTransactionRecord(MetadataRecord, record_type=23, versions="0", flexible="0+"):
    name: str | None = field(string, "0+", nullable="0+", tag=0, default=None)
