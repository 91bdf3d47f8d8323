"""DescribeQuorum (API key 55), versions 0-2.

Returns the state of the metadata quorum: leader, voters, observers, and the progress of each. A
broker forwards it to the leader.

Behaviour
- Only the leader responds. Offsets and times of other nodes are from their fetches; the leader's
  own are its log end and the present time.
- Authorisation: DESCRIBE on the cluster.

Versions
- 1 times of the last fetch and of being caught up (KIP-836). 2 messages, addresses and directory
  ids (KIP-853).
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
    uint16,
    uuid,
)


class DescribeQuorumResponse(Response, api_key=55, versions="0-2", flexible="0+"):
    # CLUSTER_AUTHORIZATION_FAILED; other errors are in the partition.
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "2+", nullable="2+", ignorable=True, default="")
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)
    nodes: list[Node] = field(array("Node"), "2+", default=FRESH)

    class ReplicaState(Struct):
        replica_id: int = field(int32, "0+", default=0)
        replica_directory_id: bytes = field(uuid, "2+", default=ZERO_UUID)
        # -1 if unknown.
        log_end_offset: int = field(int64, "0+", default=0)
        last_fetch_timestamp: int = field(int64, "1+", ignorable=True, default=-1)
        # Time at which it last had all of the leader's records; -1 if unknown.
        last_caught_up_timestamp: int = field(int64, "1+", ignorable=True, default=-1)

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[DescribeQuorumResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # NOT_LEADER_OR_FOLLOWER: find the leader. UNKNOWN_TOPIC_OR_PARTITION: not the metadata log.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "2+", nullable="2+", ignorable=True, default="")
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        high_watermark: int = field(int64, "0+", default=0)
        current_voters: list[DescribeQuorumResponse.ReplicaState] = field(
            array("ReplicaState"), "0+", default=FRESH
        )
        observers: list[DescribeQuorumResponse.ReplicaState] = field(
            array("ReplicaState"), "0+", default=FRESH
        )

    class Node(Struct):
        node_id: int = field(int32, "2+", default=0)
        listeners: list[DescribeQuorumResponse.Listener] = field(
            array("Listener"), "2+", default=FRESH
        )

    class Listener(Struct):
        name: str = field(string, "2+", default="")
        host: str = field(string, "2+", default="")
        port: int = field(uint16, "2+", default=0)


class DescribeQuorumRequest(
    Request[DescribeQuorumResponse],
    api_key=55,
    versions="0-2",
    flexible="0+",
    listeners=("broker", "controller"),
):
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[DescribeQuorumRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
