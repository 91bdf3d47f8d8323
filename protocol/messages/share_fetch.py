"""ShareFetch (API key 78), versions 1-2."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Records,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ShareFetchResponse(Response, api_key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(int32, "1+", default=0)
    responses: list[ShareFetchableTopicResponse] = field(
        array("ShareFetchableTopicResponse"), "0+", default=FRESH
    )
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "0+", default=FRESH)

    class ShareFetchableTopicResponse(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[ShareFetchResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)
        acknowledge_error_code: int = field(int16, "0+", default=0)
        acknowledge_error_message: str | None = field(string, "0+", nullable="0+", default=None)
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = field(
            struct("LeaderIdAndEpoch"), "0+", default=FRESH
        )
        records: Records | None = field(records, "0+", nullable="0", default=b"")
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = field(
            array("AcquiredRecords"), "0+", default=FRESH
        )

    class LeaderIdAndEpoch(Struct):
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)

    class AcquiredRecords(Struct):
        first_offset: int = field(int64, "0+", default=0)
        last_offset: int = field(int64, "0+", default=0)
        delivery_count: int = field(int16, "0+", default=0)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "0+", default=0)
        host: str = field(string, "0+", default="")
        port: int = field(int32, "0+", default=0)
        rack: str | None = field(string, "0+", nullable="0+", default=None)


class ShareFetchRequest(
    Request[ShareFetchResponse], api_key=78, versions="1-2", flexible="0+", listeners=("broker",)
):
    group_id: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str | None = field(string, "0+", nullable="0+", default="")
    share_session_epoch: int = field(int32, "0+", default=0)
    max_wait_ms: int = field(int32, "0+", default=0)
    min_bytes: int = field(int32, "0+", default=0)
    max_bytes: int = field(int32, "0+", default=2147483647)
    max_records: int = field(int32, "1+", default=0)
    batch_size: int = field(int32, "1+", default=0)
    share_acquire_mode: int = field(int8, "2+", ignorable=True, default=0)
    is_renew_ack: bool = field(boolean, "2+", default=False)
    topics: list[FetchTopic] = field(array("FetchTopic"), "0+", default=FRESH)
    forgotten_topics_data: list[ForgottenTopic] = field(
        array("ForgottenTopic"), "0+", default=FRESH
    )

    class FetchTopic(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[ShareFetchRequest.FetchPartition] = field(
            array("FetchPartition"), "0+", default=FRESH
        )

    class FetchPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        partition_max_bytes: int = field(int32, "0", default=0)
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = field(
            array("AcknowledgementBatch"), "0+", default=FRESH
        )

    class AcknowledgementBatch(Struct):
        first_offset: int = field(int64, "0+", default=0)
        last_offset: int = field(int64, "0+", default=0)
        acknowledge_types: list[int] = field(array(int8), "0+", default=FRESH)

    class ForgottenTopic(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
