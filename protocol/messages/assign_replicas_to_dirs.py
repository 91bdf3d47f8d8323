"""AssignReplicasToDirs (API key 73), version 0."""

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
    uuid,
)


class AssignReplicasToDirsResponse(Response, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    directories: list[DirectoryData] = field(array("DirectoryData"), "0+", default=FRESH)

    class DirectoryData(Struct):
        id: bytes = field(uuid, "0+", default=ZERO_UUID)
        topics: list[AssignReplicasToDirsResponse.TopicData] = field(
            array("TopicData"), "0+", default=FRESH
        )

    class TopicData(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[AssignReplicasToDirsResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)


class AssignReplicasToDirsRequest(
    Request[AssignReplicasToDirsResponse],
    api_key=73,
    versions="0",
    flexible="0+",
    listeners=("controller",),
):
    broker_id: int = field(int32, "0+", default=0)
    broker_epoch: int = field(int64, "0+", default=-1)
    directories: list[DirectoryData] = field(array("DirectoryData"), "0+", default=FRESH)

    class DirectoryData(Struct):
        id: bytes = field(uuid, "0+", default=ZERO_UUID)
        topics: list[AssignReplicasToDirsRequest.TopicData] = field(
            array("TopicData"), "0+", default=FRESH
        )

    class TopicData(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[AssignReplicasToDirsRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
