"""RemoteLogSegmentMetadataSnapshotRecord (record type 3), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    MetadataRecord,
    Struct,
    array,
    boolean,
    bytes_,
    field,
    int8,
    int32,
    int64,
    uuid,
)


class RemoteLogSegmentMetadataSnapshotRecord(
    MetadataRecord, record_type=3, versions="0", flexible="0+"
):
    segment_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    start_offset: int = field(int64, "0+", default=0)
    end_offset: int = field(int64, "0+", default=0)
    broker_id: int = field(int32, "0+", default=0)
    max_timestamp_ms: int = field(int64, "0+", default=0)
    event_timestamp_ms: int = field(int64, "0+", default=0)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(
        array("SegmentLeaderEpochEntry"), "0+", default=FRESH
    )
    segment_size_in_bytes: int = field(int32, "0+", default=0)
    custom_metadata: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    remote_log_segment_state: int = field(int8, "0+", default=0)
    txn_index_empty: bool = field(boolean, "0+", tag=0, default=False)

    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: int = field(int32, "0+", default=0)
        offset: int = field(int64, "0+", default=0)
