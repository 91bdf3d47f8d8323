"""BeginQuorumEpoch (API key 53), versions 0-1.

KRaft: the new leader notifies the other voters, which then fetch from it.

Behaviour
- Repeated until the voter fetches or answers. A voter that already follows this leader in this
  epoch agrees again.

Versions
- 1 flexible; voter and directory ids, the leader's addresses (KIP-853).
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


class BeginQuorumEpochResponse(Response, api_key=53, versions="0-1", flexible="1+"):
    error_code: int = field(int16, "0+", default=0)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "1+", tag=0, default=FRESH)

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[BeginQuorumEpochResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # FENCED_LEADER_EPOCH: the sender's epoch is over, see leader_epoch. INVALID_REQUEST: the
        # receiver knows another leader in the same epoch. INVALID_VOTER_KEY.
        error_code: int = field(int16, "0+", default=0)
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "1+", default=0)
        host: str = field(string, "1+", default="")
        port: int = field(uint16, "1+", default=0)


class BeginQuorumEpochRequest(
    Request[BeginQuorumEpochResponse],
    api_key=53,
    versions="0-1",
    flexible="1+",
    listeners=("controller",),
):
    cluster_id: str | None = field(string, "0+", nullable="0+", default=None)
    # The voter that is notified; if it is not the receiver: INVALID_VOTER_KEY.
    voter_id: int = field(int32, "1+", ignorable=True, default=-1)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)
    # The leader's addresses in this epoch, by listener name.
    leader_endpoints: list[LeaderEndpoint] = field(
        array("LeaderEndpoint"), "1+", ignorable=True, default=FRESH
    )

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[BeginQuorumEpochRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        voter_directory_id: bytes = field(uuid, "1+", ignorable=True, default=ZERO_UUID)
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)

    class LeaderEndpoint(Struct):
        name: str = field(string, "1+", default="")
        host: str = field(string, "1+", default="")
        port: int = field(uint16, "1+", default=0)
