"""OffsetCommit (API key 8), versions 2-10.

Stores the read positions of a group. Sent to the group's coordinator, which responds when the
offsets are in the offsets topic with acks=all.

Behaviour
- Generation or member epoch of -1 and no member id: a commit from outside the group protocol,
  allowed only while the group has no members (a group is created for it).
- Partitions fail one by one; errors of the group are repeated in each of them.
- A commit during a rebalance is accepted from a member of the present generation and keeps it
  alive.
- Authorisation: READ on the group and on each topic.

Versions
- 2-4 retention time of this commit. 6 leader epoch. 7 static members. 8 flexible.
- 9 consumer protocol of KIP-848: GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH. 10 topic ids.
"""

from __future__ import annotations

from protocol.ids import ZERO_UUID
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
    uuid,
)


class OffsetCommitResponse(Response, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = field(int32, "3+", ignorable=True, default=0)
    topics: list[OffsetCommitResponseTopic] = field(
        array("OffsetCommitResponseTopic"), "0+", default=FRESH
    )

    class OffsetCommitResponseTopic(Struct):
        name: str = field(string, "0-9", ignorable=True, default="")
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = field(
            array("OffsetCommitResponsePartition"), "0+", default=FRESH
        )

    class OffsetCommitResponsePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: find the coordinator.
        # COORDINATOR_LOAD_IN_PROGRESS: retry. ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
        # FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH: the sender is no longer this member.
        # REBALANCE_IN_PROGRESS: the group waits for the leader's assignment.
        # INVALID_COMMIT_OFFSET_SIZE: the offset does not fit into a record. GROUP_ID_NOT_FOUND (9+;
        # before: ILLEGAL_GENERATION). UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
        # TOPIC_AUTHORIZATION_FAILED: errors of the topic.
        error_code: int = field(int16, "0+", default=0)


class OffsetCommitRequest(
    Request[OffsetCommitResponse], api_key=8, versions="2-10", flexible="8+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    # Generation of the classic protocol, or member epoch of the consumer protocol.
    generation_id_or_member_epoch: int = field(int32, "1+", ignorable=True, default=-1)
    member_id: str = field(string, "1+", ignorable=True, default="")
    group_instance_id: str | None = field(string, "7+", nullable="7+", default=None)
    # -1: the broker's offsets.retention.minutes.
    retention_time_ms: int = field(int64, "2-4", ignorable=True, default=-1)
    topics: list[OffsetCommitRequestTopic] = field(
        array("OffsetCommitRequestTopic"), "0+", default=FRESH
    )

    class OffsetCommitRequestTopic(Struct):
        name: str = field(string, "0-9", ignorable=True, default="")
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = field(
            array("OffsetCommitRequestPartition"), "0+", default=FRESH
        )

    class OffsetCommitRequestPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # The next offset to read.
        committed_offset: int = field(int64, "0+", default=0)
        # Epoch of the last record read, -1 if unknown; the next reader detects a truncation with
        # it.
        committed_leader_epoch: int = field(int32, "6+", ignorable=True, default=-1)
        # Longer than offset.metadata.max.bytes: OFFSET_METADATA_TOO_LARGE.
        committed_metadata: str | None = field(string, "0+", nullable="0+", default="")
