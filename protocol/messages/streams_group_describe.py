"""StreamsGroupDescribe (API key 89), version 0."""

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
    int64,
    string,
    struct,
    uint16,
)


class StreamsGroupDescribeResponse(Response, api_key=89, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    groups: list[DescribedGroup] = field(array("DescribedGroup"), "0+", default=FRESH)

    class Endpoint(Struct):
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)

    class TaskOffset(Struct):
        subtopology_id: str = field(string, "0+", default="")
        partition: int = field(int32, "0+", default=0)
        offset: int = field(int64, "0+", default=0)

    class Assignment(Struct):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field(
            array("TaskIds"), "0+", default=FRESH
        )
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field(
            array("TaskIds"), "0+", default=FRESH
        )
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field(
            array("TaskIds"), "0+", default=FRESH
        )

    class TaskIds(Struct):
        subtopology_id: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)

    class KeyValue(Struct):
        key: str = field(string, "0+", default="")
        value: str = field(string, "0+", default="")

    class TopicInfo(Struct):
        name: str = field(string, "0+", default="")
        partitions: int = field(int32, "0+", default=0)
        replication_factor: int = field(int16, "0+", default=0)
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = field(
            array("KeyValue"), "0+", default=FRESH
        )

    class DescribedGroup(Struct):
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)
        group_id: str = field(string, "0+", default="")
        group_state: str = field(string, "0+", default="")
        group_epoch: int = field(int32, "0+", default=0)
        assignment_epoch: int = field(int32, "0+", default=0)
        topology: StreamsGroupDescribeResponse.Topology | None = field(
            struct("Topology"), "0+", nullable="0+", default=None
        )
        members: list[StreamsGroupDescribeResponse.Member] = field(
            array("Member"), "0+", default=FRESH
        )
        authorized_operations: int = field(int32, "0+", default=-2147483648)

    class Topology(Struct):
        epoch: int = field(int32, "0+", default=0)
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = field(
            array("Subtopology"), "0+", nullable="0+", default=None
        )

    class Subtopology(Struct):
        subtopology_id: str = field(string, "0+", default="")
        source_topics: list[str] = field(array(string), "0+", default=FRESH)
        repartition_sink_topics: list[str] = field(array(string), "0+", default=FRESH)
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = field(
            array("TopicInfo"), "0+", default=FRESH
        )
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = field(
            array("TopicInfo"), "0+", default=FRESH
        )

    class Member(Struct):
        member_id: str = field(string, "0+", default="")
        member_epoch: int = field(int32, "0+", default=0)
        instance_id: str | None = field(string, "0+", nullable="0+", default=None)
        rack_id: str | None = field(string, "0+", nullable="0+", default=None)
        client_id: str = field(string, "0+", default="")
        client_host: str = field(string, "0+", default="")
        topology_epoch: int = field(int32, "0+", default=0)
        process_id: str = field(string, "0+", default="")
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = field(
            struct("Endpoint"), "0+", nullable="0+", default=None
        )
        client_tags: list[StreamsGroupDescribeResponse.KeyValue] = field(
            array("KeyValue"), "0+", default=FRESH
        )
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = field(
            array("TaskOffset"), "0+", default=FRESH
        )
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = field(
            array("TaskOffset"), "0+", default=FRESH
        )
        assignment: StreamsGroupDescribeResponse.Assignment = field(
            struct("Assignment"), "0+", default=FRESH
        )
        target_assignment: StreamsGroupDescribeResponse.Assignment = field(
            struct("Assignment"), "0+", default=FRESH
        )
        is_classic: bool = field(boolean, "0+", default=False)


class StreamsGroupDescribeRequest(
    Request[StreamsGroupDescribeResponse],
    api_key=89,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    group_ids: list[str] = field(array(string), "0+", default=FRESH)
    include_authorized_operations: bool = field(boolean, "0+", default=False)
