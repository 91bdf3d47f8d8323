"""DescribeTopicPartitions (API key 75), version 0.

Describes topics page by page, with eligible leader replicas (KIP-966). Any broker responds.

Behaviour
- Topics are sorted by name; an empty list means all. A response has at most
  `response_partition_limit` partitions (and no more than max.request.partition.size.limit);
  `next_cursor` is the start of the next page, null at the end.
- A topic that does not exist has an error and does not count towards the limit.
- Authorisation: DESCRIBE on each topic.
"""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", ignorable=True, default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        array("DescribeTopicPartitionsResponseTopic"), "0+", default=FRESH
    )
    next_cursor: Cursor | None = field(struct("Cursor"), "0+", nullable="0+", default=None)

    class DescribeTopicPartitionsResponseTopic(Struct):
        # UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED.
        error_code: int = field(int16, "0+", default=0)
        name: str | None = field(string, "0+", nullable="0+", default="")
        topic_id: bytes = field(uuid, "0+", ignorable=True, default=ZERO_UUID)
        is_internal: bool = field(boolean, "0+", ignorable=True, default=False)
        partitions: list[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
        ] = field(array("DescribeTopicPartitionsResponsePartition"), "0+", default=FRESH)
        topic_authorized_operations: int = field(int32, "0+", default=-2147483648)

    class DescribeTopicPartitionsResponsePartition(Struct):
        # LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND.
        error_code: int = field(int16, "0+", default=0)
        partition_index: int = field(int32, "0+", default=0)
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", ignorable=True, default=-1)
        replica_nodes: list[int] = field(array(int32), "0+", default=FRESH)
        isr_nodes: list[int] = field(array(int32), "0+", default=FRESH)
        # Not in sync, but certain to have everything up to the high watermark.
        eligible_leader_replicas: list[int] | None = field(
            array(int32), "0+", nullable="0+", default=None
        )
        # The replicas that were eligible when the last eligible one was lost.
        last_known_elr: list[int] | None = field(array(int32), "0+", nullable="0+", default=None)
        offline_replicas: list[int] = field(array(int32), "0+", ignorable=True, default=FRESH)

    class Cursor(Struct):
        topic_name: str = field(string, "0+", default="")
        partition_index: int = field(int32, "0+", default=0)


class DescribeTopicPartitionsRequest(
    Request[DescribeTopicPartitionsResponse],
    api_key=75,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    topics: list[TopicRequest] = field(array("TopicRequest"), "0+", default=FRESH)
    response_partition_limit: int = field(int32, "0+", default=2000)
    # The first requested partition. Topics that sort before it are left out. A negative partition
    # is INVALID_REQUEST.
    cursor: Cursor | None = field(struct("Cursor"), "0+", nullable="0+", default=None)

    class TopicRequest(Struct):
        name: str = field(string, "0+", default="")

    class Cursor(Struct):
        topic_name: str = field(string, "0+", default="")
        partition_index: int = field(int32, "0+", default=0)
