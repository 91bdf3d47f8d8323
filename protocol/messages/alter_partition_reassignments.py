"""AlterPartitionReassignments (API key 45), versions 0-1."""

from __future__ import annotations

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
    string,
)


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    allow_replication_factor_change: bool = field(boolean, "1+", ignorable=True, default=True)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")
    responses: list[ReassignableTopicResponse] = field(
        array("ReassignableTopicResponse"), "0+", default=FRESH
    )

    class ReassignableTopicResponse(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = field(
            array("ReassignablePartitionResponse"), "0+", default=FRESH
        )

    class ReassignablePartitionResponse(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")


class AlterPartitionReassignmentsRequest(
    Request[AlterPartitionReassignmentsResponse],
    api_key=45,
    versions="0-1",
    flexible="0+",
    listeners=("broker", "controller"),
):
    timeout_ms: int = field(int32, "0+", default=60000)
    allow_replication_factor_change: bool = field(boolean, "1+", default=True)
    topics: list[ReassignableTopic] = field(array("ReassignableTopic"), "0+", default=FRESH)

    class ReassignableTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = field(
            array("ReassignablePartition"), "0+", default=FRESH
        )

    class ReassignablePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        replicas: list[int] | None = field(array(int32), "0+", nullable="0+", default=None)
