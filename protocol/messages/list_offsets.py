"""ListOffsets (API key 2), versions 1-11.

Returns the offset for a timestamp, or one of a log's special offsets. Sent to the leader. Consumers
use it to reset their position, followers in older protocols to truncate.

Behaviour
- A timestamp of 0 or more: the first record with that timestamp or a later one; offset -1 without
  such a record. Consumers get no offset above the high watermark (read_committed: last stable
  offset).
- Special timestamps are negative, see the field. Without tiering, the tiered ones have the values
  of a topic that was never tiered: earliest local is the log start, latest tiered is -1.
- Authorisation: DESCRIBE on the topic.

Versions
- 1 one offset per partition, with its timestamp. 2 isolation level. 4 leader epochs (KIP-320).
- 5 OFFSET_NOT_AVAILABLE. 6 flexible. 7 max timestamp (KIP-734). 8 earliest local (KIP-405).
- 9 latest tiered (KIP-1005). 10 timeout for reads from the tier (KIP-1075).
- 11 earliest pending upload (KIP-1023).
"""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int8,
    int16,
    int32,
    int64,
    string,
)


class ListOffsetsResponse(Response, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse] = field(
        array("ListOffsetsTopicResponse"), "0+", default=FRESH
    )

    class ListOffsetsTopicResponse(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = field(
            array("ListOffsetsPartitionResponse"), "0+", default=FRESH
        )

    class ListOffsetsPartitionResponse(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
        # UNKNOWN_TOPIC_OR_PARTITION: find the leader. OFFSET_NOT_AVAILABLE (before 5:
        # LEADER_NOT_AVAILABLE): a new leader does not know its high watermark yet, retry.
        # UNSUPPORTED_FOR_MESSAGE_FORMAT: no timestamps in the log.
        error_code: int = field(int16, "0+", default=0)
        # Of the found record; -1 for the special offsets.
        timestamp: int = field(int64, "1+", default=-1)
        offset: int = field(int64, "1+", default=-1)
        # Leader epoch of the found record; -1 if unknown.
        leader_epoch: int = field(int32, "4+", default=-1)


class ListOffsetsRequest(
    Request[ListOffsetsResponse], api_key=2, versions="1-11", flexible="6+", listeners=("broker",)
):
    # -1 for consumers, -2 for tools that may look beyond the high watermark.
    replica_id: int = field(int32, "0+", default=0)
    isolation_level: int = field(int8, "2+", default=0)
    topics: list[ListOffsetsTopic] = field(array("ListOffsetsTopic"), "0+", default=FRESH)
    timeout_ms: int = field(int32, "10+", ignorable=True, default=0)

    class ListOffsetsTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = field(
            array("ListOffsetsPartition"), "0+", default=FRESH
        )

    class ListOffsetsPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        current_leader_epoch: int = field(int32, "4+", ignorable=True, default=-1)
        # -1 latest, -2 earliest, -3 the record with the largest timestamp, -4 earliest local, -5
        # latest tiered, -6 earliest pending upload. One that the version does not have:
        # UNSUPPORTED_VERSION.
        timestamp: int = field(int64, "0+", default=0)
