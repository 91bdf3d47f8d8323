"""ProducerIdsRecord (record type 15), version 0."""

from __future__ import annotations

from protocol.schema import MetadataRecord, field, int32, int64


class ProducerIdsRecord(MetadataRecord, record_type=15, versions="0", flexible="0+"):
    broker_id: int = field(int32, "0+", default=0)
    broker_epoch: int = field(int64, "0+", default=-1)
    next_producer_id: int = field(int64, "0+", default=0)
