"""AlterReplicaLogDirs (API key 34), versions 1-2."""

from __future__ import annotations

from protocol.schema import FRESH, Request, Response, Struct, array, field, int16, int32, string


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    results: list[AlterReplicaLogDirTopicResult] = field(
        array("AlterReplicaLogDirTopicResult"), "0+", default=FRESH
    )

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = field(string, "0+", default="")
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = field(
            array("AlterReplicaLogDirPartitionResult"), "0+", default=FRESH
        )

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)


class AlterReplicaLogDirsRequest(
    Request[AlterReplicaLogDirsResponse],
    api_key=34,
    versions="1-2",
    flexible="2+",
    listeners=("broker",),
):
    dirs: list[AlterReplicaLogDir] = field(array("AlterReplicaLogDir"), "0+", default=FRESH)

    class AlterReplicaLogDir(Struct):
        path: str = field(string, "0+", default="")
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = field(
            array("AlterReplicaLogDirTopic"), "0+", default=FRESH
        )

    class AlterReplicaLogDirTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
