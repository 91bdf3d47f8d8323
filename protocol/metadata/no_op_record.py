"""NoOpRecord (record type 20), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord


class NoOpRecord(MetadataRecord, record_type=20, versions="0", flexible="0+"):
    pass
