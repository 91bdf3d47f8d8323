"""DeleteRecords (API key 21), versions 0-2.

Moves the start of partitions forward. Sent to each partition's leader.

Behaviour
- Records below the offset cannot be read any more; files are removed once whole segments are below
  it. The response is sent when every live replica has moved its log start, or after `timeout_ms`.
- Only topics with cleanup.policy delete are allowed; compacted-only ones get POLICY_VIOLATION.
- Authorisation: DELETE on the topic.

Versions
- 2 flexible.
"""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int16,
    int32,
    int64,
    string,
)


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    topics: list[DeleteRecordsTopicResult] = field(
        array("DeleteRecordsTopicResult"), "0+", default=FRESH
    )

    class DeleteRecordsTopicResult(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = field(
            array("DeleteRecordsPartitionResult"), "0+", default=FRESH
        )

    class DeleteRecordsPartitionResult(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # The lowest log start of all replicas; -1 with an error.
        low_watermark: int = field(int64, "0+", default=0)
        # OFFSET_OUT_OF_RANGE: above the high watermark or below -1. NOT_LEADER_OR_FOLLOWER,
        # UNKNOWN_TOPIC_OR_PARTITION: find the leader. REQUEST_TIMED_OUT: some replica is behind.
        # POLICY_VIOLATION. INVALID_TOPIC_EXCEPTION: an internal topic.
        error_code: int = field(int16, "0+", default=0)


class DeleteRecordsRequest(
    Request[DeleteRecordsResponse], api_key=21, versions="0-2", flexible="2+", listeners=("broker",)
):
    topics: list[DeleteRecordsTopic] = field(array("DeleteRecordsTopic"), "0+", default=FRESH)
    timeout_ms: int = field(int32, "0+", default=0)

    class DeleteRecordsTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = field(
            array("DeleteRecordsPartition"), "0+", default=FRESH
        )

    class DeleteRecordsPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # -1: the high watermark.
        offset: int = field(int64, "0+", default=0)
