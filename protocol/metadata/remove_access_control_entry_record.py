"""RemoveAccessControlEntryRecord (record type 19), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import MetadataRecord, field, uuid


class RemoveAccessControlEntryRecord(MetadataRecord, record_type=19, versions="0", flexible="0+"):
    id: bytes = field(uuid, "0+", default=ZERO_UUID)
