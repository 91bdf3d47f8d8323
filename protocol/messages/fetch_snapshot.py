"""FetchSnapshot (API key 59), versions 0-1.

KRaft: reads a piece of a snapshot from the leader (KIP-630). It follows a Fetch whose response has
a snapshot id.

Behaviour
- The pieces start at `position` and ignore batch boundaries; the last one ends at `size`. The
  receiver validates the snapshot, renames it and continues to fetch at its end offset.
- Authorisation: CLUSTER_ACTION on the cluster.

Versions
- 1 directory id (KIP-853).
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
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uuid,
)


class FetchSnapshotResponse(Response, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", ignorable=True, default=0)
    # INCONSISTENT_CLUSTER_ID, INVALID_REQUEST.
    error_code: int = field(int16, "0+", default=0)
    topics: list[TopicSnapshot] = field(array("TopicSnapshot"), "0+", default=FRESH)
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "1+", tag=0, default=FRESH)

    class TopicSnapshot(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[FetchSnapshotResponse.PartitionSnapshot] = field(
            array("PartitionSnapshot"), "0+", default=FRESH
        )

    class PartitionSnapshot(Struct):
        index: int = field(int32, "0+", default=0)
        # SNAPSHOT_NOT_FOUND: start over with Fetch. POSITION_OUT_OF_RANGE: beyond the size.
        # NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH: see current_leader.
        # UNKNOWN_TOPIC_OR_PARTITION: not the metadata log.
        error_code: int = field(int16, "0+", default=0)
        snapshot_id: FetchSnapshotResponse.SnapshotId = field(
            struct("SnapshotId"), "0+", default=FRESH
        )
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch = field(
            struct("LeaderIdAndEpoch"), "0+", tag=0, default=FRESH
        )
        size: int = field(int64, "0+", default=0)
        position: int = field(int64, "0+", default=0)
        # May begin and end inside a batch.
        unaligned_records: Records = field(records, "0+", default=b"")

    class SnapshotId(Struct):
        end_offset: int = field(int64, "0+", default=0)
        epoch: int = field(int32, "0+", default=0)

    class LeaderIdAndEpoch(Struct):
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "1+", default=0)
        host: str = field(string, "1+", default="")
        port: int = field(uint16, "1+", default=0)


class FetchSnapshotRequest(
    Request[FetchSnapshotResponse],
    api_key=59,
    versions="0-1",
    flexible="0+",
    listeners=("controller",),
):
    cluster_id: str | None = field(string, "0+", nullable="0+", tag=0, default=None)
    replica_id: int = field(int32, "0+", default=-1)
    max_bytes: int = field(int32, "0+", default=2147483647)
    topics: list[TopicSnapshot] = field(array("TopicSnapshot"), "0+", default=FRESH)

    class TopicSnapshot(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[FetchSnapshotRequest.PartitionSnapshot] = field(
            array("PartitionSnapshot"), "0+", default=FRESH
        )

    class PartitionSnapshot(Struct):
        partition: int = field(int32, "0+", default=0)
        current_leader_epoch: int = field(int32, "0+", default=0)
        snapshot_id: FetchSnapshotRequest.SnapshotId = field(
            struct("SnapshotId"), "0+", default=FRESH
        )
        position: int = field(int64, "0+", default=0)
        replica_directory_id: bytes = field(uuid, "1+", tag=0, ignorable=True, default=ZERO_UUID)

    class SnapshotId(Struct):
        # The first offset that the snapshot does not contain.
        end_offset: int = field(int64, "0+", default=0)
        epoch: int = field(int32, "0+", default=0)
