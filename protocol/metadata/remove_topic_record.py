"""RemoveTopicRecord (record type 9), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import MetadataRecord, field, uuid


class RemoveTopicRecord(MetadataRecord, record_type=9, versions="0", flexible="0+"):
    topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
