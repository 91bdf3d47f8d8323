"""CreateTopics (API key 19), versions 2-7.

Creates topics. A broker forwards it to the active controller, which responds when the topics are
committed.

Behaviour
- Each topic succeeds or fails by itself. It has either counts (-1 means the broker's defaults, 4+)
  or explicit replica assignments, not both; assigned partitions are 0, 1, 2, ... without a gap.
- `validate_only` checks everything and creates nothing.
- Authorisation: CREATE on the cluster or the topic; DESCRIBE_CONFIGS to see the configs in the
  response.

Versions
- 4 default counts (KIP-464). 5 flexible; counts and configs in the response (KIP-525).
- 6 THROTTLING_QUOTA_EXCEEDED (KIP-599). 7 topic id in the response.
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
        # TOPIC_ALREADY_EXISTS. INVALID_TOPIC_EXCEPTION: illegal name, or it equals another one up
        # to dots and underscores. INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR: illegal counts,
        # too few unfenced brokers. INVALID_REPLICA_ASSIGNMENT. INVALID_CONFIG: unknown key or bad
        # value. INVALID_REQUEST: a topic twice, or counts with assignments. POLICY_VIOLATION.
        # REQUEST_TIMED_OUT: the topic may still be created. NOT_CONTROLLER: forward again.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "1+", nullable="0+", ignorable=True, default="")
        # TOPIC_AUTHORIZATION_FAILED: the client may not see the configs; then counts are -1.
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
        # As in DescribeConfigs.
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
        # -1: num.partitions of the broker, or the number of assignments.
        num_partitions: int = field(int32, "0+", default=0)
        # -1: default.replication.factor, or the size of the assignments.
        replication_factor: int = field(int16, "0+", default=0)
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = field(
            array("CreatableReplicaAssignment"), "0+", default=FRESH
        )
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = field(
            array("CreatableTopicConfig"), "0+", default=FRESH
        )

    class CreatableReplicaAssignment(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # The first one is the preferred leader.
        broker_ids: list[int] = field(array(int32), "0+", default=FRESH)

    class CreatableTopicConfig(Struct):
        name: str = field(string, "0+", default="")
        value: str | None = field(string, "0+", nullable="0+", default="")
