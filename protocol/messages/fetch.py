"""Fetch (API key 1), versions 4-18."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Records,
    Request,
    Response,
    Struct,
    array,
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


class FetchResponse(Response, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    error_code: int = field(int16, "7+", ignorable=True, default=0)
    session_id: int = field(int32, "7+", default=0)
    responses: list[FetchableTopicResponse] = field(
        array("FetchableTopicResponse"), "0+", default=FRESH
    )
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "16+", tag=0, default=FRESH)

    class FetchableTopicResponse(Struct):
        topic: str = field(string, "0-12", ignorable=True, default="")
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partitions: list[FetchResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        high_watermark: int = field(int64, "0+", default=0)
        last_stable_offset: int = field(int64, "4+", ignorable=True, default=-1)
        log_start_offset: int = field(int64, "5+", ignorable=True, default=-1)
        diverging_epoch: FetchResponse.EpochEndOffset = field(
            struct("EpochEndOffset"), "12+", tag=0, default=FRESH
        )
        current_leader: FetchResponse.LeaderIdAndEpoch = field(
            struct("LeaderIdAndEpoch"), "12+", tag=1, default=FRESH
        )
        snapshot_id: FetchResponse.SnapshotId = field(
            struct("SnapshotId"), "12+", tag=2, default=FRESH
        )
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = field(
            array("AbortedTransaction"), "4+", nullable="4+", ignorable=True, default=FRESH
        )
        preferred_read_replica: int = field(int32, "11+", default=-1)
        records: Records | None = field(records, "0+", nullable="0+", default=b"")

    class EpochEndOffset(Struct):
        epoch: int = field(int32, "12+", default=-1)
        end_offset: int = field(int64, "12+", default=-1)

    class LeaderIdAndEpoch(Struct):
        leader_id: int = field(int32, "12+", default=-1)
        leader_epoch: int = field(int32, "12+", default=-1)

    class SnapshotId(Struct):
        end_offset: int = field(int64, "0+", default=-1)
        epoch: int = field(int32, "0+", default=-1)

    class AbortedTransaction(Struct):
        producer_id: int = field(int64, "4+", default=0)
        first_offset: int = field(int64, "4+", default=0)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "16+", default=0)
        host: str = field(string, "16+", default="")
        port: int = field(int32, "16+", default=0)
        rack: str | None = field(string, "16+", nullable="16+", default=None)


class FetchRequest(
    Request[FetchResponse],
    api_key=1,
    versions="4-18",
    flexible="12+",
    listeners=("broker", "controller"),
):
    cluster_id: str | None = field(
        string, "12+", nullable="12+", tag=0, ignorable=True, default=None
    )
    replica_id: int = field(int32, "0-14", default=-1)
    replica_state: ReplicaState = field(struct("ReplicaState"), "15+", tag=1, default=FRESH)
    max_wait_ms: int = field(int32, "0+", default=0)
    min_bytes: int = field(int32, "0+", default=0)
    max_bytes: int = field(int32, "3+", ignorable=True, default=2147483647)
    isolation_level: int = field(int8, "4+", ignorable=True, default=0)
    session_id: int = field(int32, "7+", ignorable=True, default=0)
    session_epoch: int = field(int32, "7+", ignorable=True, default=-1)
    topics: list[FetchTopic] = field(array("FetchTopic"), "0+", default=FRESH)
    forgotten_topics_data: list[ForgottenTopic] = field(
        array("ForgottenTopic"), "7+", default=FRESH
    )
    rack_id: str = field(string, "11+", ignorable=True, default="")

    class ReplicaState(Struct):
        replica_id: int = field(int32, "15+", default=-1)
        replica_epoch: int = field(int64, "15+", default=-1)

    class FetchTopic(Struct):
        topic: str = field(string, "0-12", ignorable=True, default="")
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partitions: list[FetchRequest.FetchPartition] = field(
            array("FetchPartition"), "0+", default=FRESH
        )

    class FetchPartition(Struct):
        partition: int = field(int32, "0+", default=0)
        current_leader_epoch: int = field(int32, "9+", ignorable=True, default=-1)
        fetch_offset: int = field(int64, "0+", default=0)
        last_fetched_epoch: int = field(int32, "12+", default=-1)
        log_start_offset: int = field(int64, "5+", ignorable=True, default=-1)
        partition_max_bytes: int = field(int32, "0+", default=0)
        replica_directory_id: bytes = field(uuid, "17+", tag=0, ignorable=True, default=ZERO_UUID)
        high_watermark: int = field(
            int64, "18+", tag=1, ignorable=True, default=9223372036854775807
        )

    class ForgottenTopic(Struct):
        topic: str = field(string, "7-12", ignorable=True, default="")
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "7+", default=FRESH)
