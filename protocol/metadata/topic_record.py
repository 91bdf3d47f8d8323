"""TopicRecord (record type 2), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import MetadataRecord, field, string, uuid


class TopicRecord(MetadataRecord, record_type=2, versions="0", flexible="0+"):
    name: str = field(string, "0+", default="")
    topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
