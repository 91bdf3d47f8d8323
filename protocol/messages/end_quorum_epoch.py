"""EndQuorumEpoch (API key 54), versions 0-1.

KRaft: a leader that stops notifies the other voters, so that they need not wait for a timeout.

Behaviour
- The voters stand for election in the order of the list: the first at once, the others after a
  delay that grows with their position. The voter with the longest log is first.
- The leader repeats it until all have responded or it has stopped.

Versions
- 1 flexible; candidates with directory ids (KIP-853).
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
    string,
    uint16,
    uuid,
)


class EndQuorumEpochResponse(Response, api_key=54, versions="0-1", flexible="1+"):
    error_code: int = field(int16, "0+", default=0)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "1+", tag=0, default=FRESH)

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[EndQuorumEpochResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # FENCED_LEADER_EPOCH: the epoch is over already. INVALID_REQUEST: the sender does not lead
        # in it. INVALID_VOTER_KEY.
        error_code: int = field(int16, "0+", default=0)
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "1+", default=0)
        host: str = field(string, "1+", default="")
        port: int = field(uint16, "1+", default=0)


class EndQuorumEpochRequest(
    Request[EndQuorumEpochResponse],
    api_key=54,
    versions="0-1",
    flexible="1+",
    listeners=("controller",),
):
    cluster_id: str | None = field(string, "0+", nullable="0+", default=None)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)
    leader_endpoints: list[LeaderEndpoint] = field(
        array("LeaderEndpoint"), "1+", ignorable=True, default=FRESH
    )

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[EndQuorumEpochRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        preferred_successors: list[int] = field(array(int32), "0", ignorable=True, default=FRESH)
        # In order of preference; preferred_successors in version 0.
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = field(
            array("ReplicaInfo"), "1+", ignorable=True, default=FRESH
        )

    class ReplicaInfo(Struct):
        candidate_id: int = field(int32, "1+", default=0)
        candidate_directory_id: bytes = field(uuid, "1+", default=ZERO_UUID)

    class LeaderEndpoint(Struct):
        name: str = field(string, "1+", default="")
        host: str = field(string, "1+", default="")
        port: int = field(uint16, "1+", default=0)
