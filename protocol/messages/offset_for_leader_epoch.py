"""OffsetForLeaderEpoch (API key 23), versions 2-4.

Returns the end offset of a leader epoch in the leader's log. Consumers and followers use it to find
where their position or log diverges from the leader's (KIP-101, KIP-279, KIP-320).

Behaviour
- The response has the largest epoch up to the requested one, and the first offset of the epoch
  after it; for the present epoch the log end (for consumers: the high watermark). Epoch and offset
  are -1 if the requested epoch is above all known ones.
- Authorisation: DESCRIBE on the topic; CLUSTER_ACTION for followers.

Versions
- 2 check of the current leader epoch. 3 replica id. 4 flexible.
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


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True, default=0)
    topics: list[OffsetForLeaderTopicResult] = field(
        array("OffsetForLeaderTopicResult"), "0+", default=FRESH
    )

    class OffsetForLeaderTopicResult(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = field(
            array("EpochEndOffset"), "0+", default=FRESH
        )

    class EpochEndOffset(Struct):
        # FENCED_LEADER_EPOCH: the sender is behind. UNKNOWN_LEADER_EPOCH: the broker is behind.
        # NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION: find the leader. OFFSET_NOT_AVAILABLE:
        # a new leader does not know its high watermark yet.
        error_code: int = field(int16, "0+", default=0)
        partition: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "1+", ignorable=True, default=-1)
        end_offset: int = field(int64, "0+", default=-1)


class OffsetForLeaderEpochRequest(
    Request[OffsetForLeaderEpochResponse],
    api_key=23,
    versions="2-4",
    flexible="4+",
    listeners=("broker",),
):
    # -1 consumers, -2 tools that may see beyond the high watermark.
    replica_id: int = field(int32, "3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic] = field(array("OffsetForLeaderTopic"), "0+", default=FRESH)

    class OffsetForLeaderTopic(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = field(
            array("OffsetForLeaderPartition"), "0+", default=FRESH
        )

    class OffsetForLeaderPartition(Struct):
        partition: int = field(int32, "0+", default=0)
        # -1 skips the check, see the errors.
        current_leader_epoch: int = field(int32, "2+", ignorable=True, default=-1)
        leader_epoch: int = field(int32, "0+", default=0)
