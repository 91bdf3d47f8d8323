"""ListPartitionReassignments (API key 46), version 0."""

from __future__ import annotations

from protocol.schema import FRESH, Request, Response, Struct, array, field, int16, int32, string


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")
    topics: list[OngoingTopicReassignment] = field(
        array("OngoingTopicReassignment"), "0+", default=FRESH
    )

    class OngoingTopicReassignment(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = field(
            array("OngoingPartitionReassignment"), "0+", default=FRESH
        )

    class OngoingPartitionReassignment(Struct):
        partition_index: int = field(int32, "0+", default=0)
        replicas: list[int] = field(array(int32), "0+", default=FRESH)
        adding_replicas: list[int] = field(array(int32), "0+", default=FRESH)
        removing_replicas: list[int] = field(array(int32), "0+", default=FRESH)


class ListPartitionReassignmentsRequest(
    Request[ListPartitionReassignmentsResponse],
    api_key=46,
    versions="0",
    flexible="0+",
    listeners=("broker", "controller"),
):
    timeout_ms: int = field(int32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array("ListPartitionReassignmentsTopics"), "0+", nullable="0+", default=None
    )

    class ListPartitionReassignmentsTopics(Struct):
        name: str = field(string, "0+", default="")
        partition_indexes: list[int] = field(array(int32), "0+", default=FRESH)
