"""Fetch (API key 1), versions 4-19; version 19 is unstable.

Reads batches. Consumers, followers (replica id of 0 or more) and KRaft voters and observers (topic
`__cluster_metadata`) use the same request.

Behaviour
- The request waits until `min_bytes` are available or `max_wait_ms` have passed; an error in any
  partition ends the wait. Consumers read up to the high watermark, with read_committed up to the
  last stable offset, followers up to the log end.
- `max_bytes` and `partition_max_bytes` are soft limits: the first batch of the first partition that
  has data is sent whole, so that a reader of a large batch progresses. The last batch may be
  truncated.
- Sessions (KIP-227): a full request (epoch 0) opens one; later requests contain only changes, and
  responses only partitions with news. Epoch -1 closes it without opening another.
- A follower's fetch offset is its log end: it advances the high watermark and the in-sync set. With
  `last_fetched_epoch` the leader finds the point of divergence itself (KIP-595).
- Authorisation: READ on the topic; CLUSTER_ACTION for followers.

Versions
- 4 isolation level. 5 log start offset. 7 sessions. 9 leader epoch check (KIP-320). 10 zstd.
- 11 rack and preferred replica (KIP-392). 12 flexible, divergence by epoch, cluster id.
- 13 topic ids. 14 OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405). 15 replica state with broker epoch
  (KIP-903). 16 endpoints of new leaders (KIP-951). 17 directory id of the fetching voter (KIP-853).
- 18 the follower's known high watermark (KIP-1166).
- 19 the follower's local-log stats (KIP-1303). No Kafka release has it: only Kraftbox brokers use
  it, and a sender uses it only by explicit number.
"""

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


class FetchResponse(Response, api_key=1, versions="4-19", flexible="12+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    # FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR: open a
    # new session. Between KRaft nodes also INCONSISTENT_CLUSTER_ID.
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
        # OFFSET_OUT_OF_RANGE: below the log start or above the end. NOT_LEADER_OR_FOLLOWER,
        # FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID:
        # find the leader. REPLICA_NOT_AVAILABLE: not a replica yet. OFFSET_MOVED_TO_TIERED_STORAGE:
        # for followers: build the state from the tier. KAFKA_STORAGE_ERROR: the log directory
        # failed.
        error_code: int = field(int16, "0+", default=0)
        # -1 with most errors.
        high_watermark: int = field(int64, "0+", default=0)
        last_stable_offset: int = field(int64, "4+", ignorable=True, default=-1)
        log_start_offset: int = field(int64, "5+", ignorable=True, default=-1)
        # Set if the reader's log diverges from the leader's: the largest epoch up to the reader's
        # last one, and its end offset here. The reader truncates and fetches again; there are no
        # records.
        diverging_epoch: FetchResponse.EpochEndOffset = field(
            struct("EpochEndOffset"), "12+", tag=0, default=FRESH
        )
        # Set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH.
        current_leader: FetchResponse.LeaderIdAndEpoch = field(
            struct("LeaderIdAndEpoch"), "12+", tag=1, default=FRESH
        )
        # KRaft: the offset lies below the log start, fetch this snapshot.
        snapshot_id: FetchResponse.SnapshotId = field(
            struct("SnapshotId"), "12+", tag=2, default=FRESH
        )
        # For read_committed, sorted by first offset; null for other isolation levels.
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = field(
            array("AbortedTransaction"), "4+", nullable="4+", ignorable=True, default=FRESH
        )
        # -1: continue to read here. Otherwise there are no records.
        preferred_read_replica: int = field(int32, "11+", default=-1)
        # The first batch may begin below the fetch offset: batches are sent whole.
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
    versions="4-19",
    flexible="12+",
    unstable="19",
    on_request="19",
    listeners=("broker", "controller"),
):
    # Only between KRaft nodes; another cluster's id: INCONSISTENT_CLUSTER_ID.
    cluster_id: str | None = field(
        string, "12+", nullable="12+", tag=0, ignorable=True, default=None
    )
    # -1 for consumers. From 15 on see replica_state.
    replica_id: int = field(int32, "0-14", default=-1)
    replica_state: ReplicaState = field(struct("ReplicaState"), "15+", tag=1, default=FRESH)
    max_wait_ms: int = field(int32, "0+", default=0)
    min_bytes: int = field(int32, "0+", default=0)
    max_bytes: int = field(int32, "3+", ignorable=True, default=2147483647)
    # 0 read_uncommitted, 1 read_committed.
    isolation_level: int = field(int8, "4+", ignorable=True, default=0)
    # 0 requests a new session. An unknown id: FETCH_SESSION_ID_NOT_FOUND.
    session_id: int = field(int32, "7+", ignorable=True, default=0)
    # -1: no session, or the end of one; 0: a full request; then incremented by one. A gap:
    # INVALID_FETCH_SESSION_EPOCH.
    session_epoch: int = field(int32, "7+", ignorable=True, default=-1)
    topics: list[FetchTopic] = field(array("FetchTopic"), "0+", default=FRESH)
    # Partitions to remove from the session.
    forgotten_topics_data: list[ForgottenTopic] = field(
        array("ForgottenTopic"), "7+", default=FRESH
    )
    # Allows the leader to redirect a consumer to a replica in its rack.
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
        # -1 skips the check. Older than the broker's: FENCED_LEADER_EPOCH, newer:
        # UNKNOWN_LEADER_EPOCH.
        current_leader_epoch: int = field(int32, "9+", ignorable=True, default=-1)
        fetch_offset: int = field(int64, "0+", default=0)
        # Epoch of the record before fetch_offset; -1 if unknown.
        last_fetched_epoch: int = field(int32, "12+", default=-1)
        # The follower's; -1 from consumers. The minimum of all replicas completes a DeleteRecords.
        log_start_offset: int = field(int64, "5+", ignorable=True, default=-1)
        partition_max_bytes: int = field(int32, "0+", default=0)
        replica_directory_id: bytes = field(uuid, "17+", tag=0, ignorable=True, default=ZERO_UUID)
        # The high watermark that the sender knows; the default means unknown.
        high_watermark: int = field(
            int64, "18+", tag=1, ignorable=True, default=9223372036854775807
        )
        # The follower's local-log stats: timestamp of its first local batch, and size of its local
        # segments; -1 if not reported.
        local_log_start_timestamp: int = field(int64, "19+", ignorable=True, default=-1)
        local_log_size_bytes: int = field(int64, "19+", ignorable=True, default=-1)

    class ForgottenTopic(Struct):
        topic: str = field(string, "7-12", ignorable=True, default="")
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "7+", default=FRESH)
