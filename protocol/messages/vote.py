"""Vote (API key 52), versions 0-2."""

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
        error_code: int = field(int16, "0+", default=0)
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
    cluster_id: str | None = field(string, "0+", nullable="0+", default=None)
    voter_id: int = field(int32, "1+", ignorable=True, default=-1)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)

    class TopicData(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[VoteRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        replica_epoch: int = field(int32, "0+", default=0)
        replica_id: int = field(int32, "0+", default=0)
        replica_directory_id: bytes = field(uuid, "1+", ignorable=True, default=ZERO_UUID)
        voter_directory_id: bytes = field(uuid, "1+", ignorable=True, default=ZERO_UUID)
        last_offset_epoch: int = field(int32, "0+", default=0)
        last_offset: int = field(int64, "0+", default=0)
        pre_vote: bool = field(boolean, "2+", default=False)
