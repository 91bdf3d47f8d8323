"""Vote (API key 52), versions 0-2.

KRaft: a node requests the vote of a voter; with `pre_vote`, only whether the voter would grant it
(KIP-595, KIP-996).

Behaviour
- A voter grants one vote per epoch, which is on its disk before the response. It grants the vote to
  a log that is at least as up to date as its own: a larger last epoch, or the same one and an end
  offset not smaller.
- A pre-vote changes nothing: no epoch is increased, no vote is recorded. A voter that is in contact
  with a leader refuses it.
- A node that observes a larger epoch moves to it. The request is sent to every voter.

Versions
- 1 voter and directory ids (KIP-853). 2 pre-vote; the candidate is called replica.
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
    int64,
    string,
    uint16,
    uuid,
)


class VoteResponse(Response, api_key=52, versions="0-2", flexible="0+"):
    # INCONSISTENT_CLUSTER_ID. INVALID_REQUEST: other topics than the metadata log.
    error_code: int = field(int16, "0+", default=0)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "1+", tag=0, default=FRESH)

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[VoteResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # FENCED_LEADER_EPOCH: the sender's epoch is old, see leader_epoch. INVALID_VOTER_KEY.
        # INCONSISTENT_VOTER_SET: the sender or receiver is not a voter.
        error_code: int = field(int16, "0+", default=0)
        # -1 if the receiver knows no leader in leader_epoch.
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        vote_granted: bool = field(boolean, "0+", default=False)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "1+", default=0)
        host: str = field(string, "1+", default="")
        port: int = field(uint16, "1+", default=0)


class VoteRequest(
    Request[VoteResponse], api_key=52, versions="0-2", flexible="0+", listeners=("controller",)
):
    # Another cluster's id: INCONSISTENT_CLUSTER_ID.
    cluster_id: str | None = field(string, "0+", nullable="0+", default=None)
    # The voter that receives the request; if it is not the receiver: INVALID_VOTER_KEY.
    voter_id: int = field(int32, "1+", ignorable=True, default=-1)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[VoteRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # The epoch of the requested vote; with pre_vote the sender's present one.
        replica_epoch: int = field(int32, "0+", default=0)
        replica_id: int = field(int32, "0+", default=0)
        replica_directory_id: bytes = field(uuid, "1+", ignorable=True, default=ZERO_UUID)
        voter_directory_id: bytes = field(uuid, "1+", ignorable=True, default=ZERO_UUID)
        last_offset_epoch: int = field(int32, "0+", default=0)
        # The end of the sender's log, with the epoch of its last record.
        last_offset: int = field(int64, "0+", default=0)
        pre_vote: bool = field(boolean, "2+", default=False)
