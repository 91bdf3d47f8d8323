"""CreateTopics (API key 19), versions 2-7."""

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
    int8,
    int16,
    int32,
    string,
    uuid,
)


class CreateTopicsResponse(Response, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True, default=0)
    topics: list[CreatableTopicResult] = field(array("CreatableTopicResult"), "0+", default=FRESH)

    class CreatableTopicResult(Struct):
        name: str = field(string, "0+", default="")
        topic_id: bytes = field(uuid, "7+", ignorable=True, default=ZERO_UUID)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "1+", nullable="0+", ignorable=True, default="")
        topic_config_error_code: int = field(int16, "5+", tag=0, ignorable=True, default=0)
        num_partitions: int = field(int32, "5+", ignorable=True, default=-1)
        replication_factor: int = field(int16, "5+", ignorable=True, default=-1)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = field(
            array("CreatableTopicConfigs"), "5+", nullable="5+", ignorable=True, default=FRESH
        )

    class CreatableTopicConfigs(Struct):
        name: str = field(string, "5+", default="")
        value: str | None = field(string, "5+", nullable="5+", default="")
        read_only: bool = field(boolean, "5+", default=False)
        config_source: int = field(int8, "5+", ignorable=True, default=-1)
        is_sensitive: bool = field(boolean, "5+", default=False)


class CreateTopicsRequest(
    Request[CreateTopicsResponse],
    api_key=19,
    versions="2-7",
    flexible="5+",
    listeners=("broker", "controller"),
):
    topics: list[CreatableTopic] = field(array("CreatableTopic"), "0+", default=FRESH)
    timeout_ms: int = field(int32, "0+", default=60000)
    validate_only: bool = field(boolean, "1+", default=False)

    class CreatableTopic(Struct):
        name: str = field(string, "0+", default="")
        num_partitions: int = field(int32, "0+", default=0)
        replication_factor: int = field(int16, "0+", default=0)
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = field(
            array("CreatableReplicaAssignment"), "0+", default=FRESH
        )
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = field(
            array("CreatableTopicConfig"), "0+", default=FRESH
        )

    class CreatableReplicaAssignment(Struct):
        partition_index: int = field(int32, "0+", default=0)
        broker_ids: list[int] = field(array(int32), "0+", default=FRESH)

    class CreatableTopicConfig(Struct):
        name: str = field(string, "0+", default="")
        value: str | None = field(string, "0+", nullable="0+", default="")
