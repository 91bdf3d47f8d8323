"""EndTransactionRecord (record type 24), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord


class EndTransactionRecord(MetadataRecord, record_type=24, versions="0", flexible="0+"):
    pass
