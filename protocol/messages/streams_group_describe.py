"""StreamsGroupDescribe (API key 89), versions 0-1."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class StreamsGroupDescribeResponse(Response, api_key=89, versions="0-1", flexible="0+"):
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

    class TopologyDescription(Struct):
        subtopologies: list[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology] = field(
            array("TopologyDescriptionSubtopology"), "1+", default=FRESH
        )
        global_stores: list[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore] = field(
            array("TopologyDescriptionGlobalStore"), "1+", default=FRESH
        )

    class TopologyDescriptionSubtopology(Struct):
        subtopology_id: str = field(string, "1+", default="")
        nodes: list[StreamsGroupDescribeResponse.TopologyDescriptionNode] = field(
            array("TopologyDescriptionNode"), "1+", default=FRESH
        )

    class TopologyDescriptionNode(Struct):
        name: str = field(string, "1+", default="")
        node_type: int = field(int8, "1+", default=0)
        source_topics: list[str] = field(array(string), "1+", default=FRESH)
        sink_topic: str | None = field(string, "1+", nullable="1+", default=None)
        stores: list[str] = field(array(string), "1+", default=FRESH)
        successors: list[str] = field(array(string), "1+", default=FRESH)

    class TopologyDescriptionGlobalStore(Struct):
        source: StreamsGroupDescribeResponse.TopologyDescriptionNode = field(
            struct("TopologyDescriptionNode"), "1+", default=FRESH
        )
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode = field(
            struct("TopologyDescriptionNode"), "1+", default=FRESH
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
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = field(
            struct("TopologyDescription"), "1+", nullable="1+", default=None
        )
        topology_description_status: int = field(int8, "1+", default=0)
        assignor_name: str | None = field(string, "1+", nullable="1+", ignorable=True, default=None)

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
    versions="0-1",
    flexible="0+",
    listeners=("broker",),
):
    group_ids: list[str] = field(array(string), "0+", default=FRESH)
    include_authorized_operations: bool = field(boolean, "0+", default=False)
    include_topology_description: bool = field(boolean, "1+", default=False)
