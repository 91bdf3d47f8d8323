"""StreamsGroupHeartbeat (API key 88), versions 0-1."""

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


class StreamsGroupHeartbeatResponse(Response, api_key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str = field(string, "0+", default="")
    member_epoch: int = field(int32, "0+", default=0)
    heartbeat_interval_ms: int = field(int32, "0+", default=0)
    acceptable_recovery_lag_legacy: int = field(int32, "0", default=0)
    task_offset_interval_ms: int = field(int32, "0+", default=0)
    acceptable_recovery_lag: int = field(int64, "1+", ignorable=True, default=-1)
    status: list[Status] | None = field(array("Status"), "0+", nullable="0+", default=FRESH)
    active_tasks: list[TaskIds] | None = field(array("TaskIds"), "0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(array("TaskIds"), "0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(array("TaskIds"), "0+", nullable="0+", default=None)
    topology_description_required: bool = field(boolean, "1+", default=False)
    endpoint_information_epoch: int = field(int32, "0+", default=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        array("EndpointToPartitions"), "0+", nullable="0+", default=None
    )

    class Status(Struct):
        status_code: int = field(int8, "0+", default=0)
        status_detail: str = field(string, "0+", default="")

    class TopicPartition(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)

    class TaskIds(Struct):
        subtopology_id: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)

    class Endpoint(Struct):
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)

    class EndpointToPartitions(Struct):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = field(
            struct("Endpoint"), "0+", default=FRESH
        )
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = field(
            array("TopicPartition"), "0+", default=FRESH
        )
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = field(
            array("TopicPartition"), "0+", default=FRESH
        )


class StreamsGroupHeartbeatRequest(
    Request[StreamsGroupHeartbeatResponse],
    api_key=88,
    versions="0-1",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    member_id: str = field(string, "0+", default="")
    member_epoch: int = field(int32, "0+", default=0)
    endpoint_information_epoch: int = field(int32, "0+", default=0)
    instance_id: str | None = field(string, "0+", nullable="0+", default=None)
    rack_id: str | None = field(string, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    topology: Topology | None = field(struct("Topology"), "0+", nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field(array("TaskIds"), "0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(array("TaskIds"), "0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(array("TaskIds"), "0+", nullable="0+", default=None)
    process_id: str | None = field(string, "0+", nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(struct("Endpoint"), "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field(array("KeyValue"), "0+", nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field(
        array("TaskOffset"), "0+", nullable="0+", default=None
    )
    task_end_offsets: list[TaskOffset] | None = field(
        array("TaskOffset"), "0+", nullable="0+", default=None
    )
    shutdown_application: bool = field(boolean, "0+", default=False)

    class KeyValue(Struct):
        key: str = field(string, "0+", default="")
        value: str = field(string, "0+", default="")

    class TopicInfo(Struct):
        name: str = field(string, "0+", default="")
        partitions: int = field(int32, "0+", default=0)
        replication_factor: int = field(int16, "0+", default=0)
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = field(
            array("KeyValue"), "0+", default=FRESH
        )

    class Endpoint(Struct):
        host: str = field(string, "0+", default="")
        port: int = field(uint16, "0+", default=0)

    class TaskOffset(Struct):
        subtopology_id: str = field(string, "0+", default="")
        partition: int = field(int32, "0+", default=0)
        offset: int = field(int64, "0+", default=0)

    class TaskIds(Struct):
        subtopology_id: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)

    class Topology(Struct):
        epoch: int = field(int32, "0+", default=0)
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = field(
            array("Subtopology"), "0+", default=FRESH
        )

    class Subtopology(Struct):
        subtopology_id: str = field(string, "0+", default="")
        source_topics: list[str] = field(array(string), "0+", default=FRESH)
        source_topic_regex: list[str] = field(array(string), "0+", default=FRESH)
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = field(
            array("TopicInfo"), "0+", default=FRESH
        )
        repartition_sink_topics: list[str] = field(array(string), "0+", default=FRESH)
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = field(
            array("TopicInfo"), "0+", default=FRESH
        )
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = field(
            array("CopartitionGroup"), "0+", default=FRESH
        )

    class CopartitionGroup(Struct):
        source_topics: list[int] = field(array(int16), "0+", default=FRESH)
        source_topic_regex: list[int] = field(array(int16), "0+", default=FRESH)
        repartition_source_topics: list[int] = field(array(int16), "0+", default=FRESH)
