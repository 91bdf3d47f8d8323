"""CreatePartitions (API key 37), versions 0-3.

Adds partitions to topics; their number can only grow. Forwarded to the active controller.

Behaviour
- Topics fail one by one. The controller places the replicas, unless `assignments` has them: one
  entry per new partition, each with the topic's number of replicas.
- Authorisation: ALTER on the topic.

Versions
- 2 flexible. 3 THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

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


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    results: list[CreatePartitionsTopicResult] = field(
        array("CreatePartitionsTopicResult"), "0+", default=FRESH
    )

    class CreatePartitionsTopicResult(Struct):
        name: str = field(string, "0+", default="")
        # UNKNOWN_TOPIC_OR_PARTITION. INVALID_PARTITIONS: not above the present number.
        # INVALID_REPLICA_ASSIGNMENT: wrong number of entries or brokers, unknown brokers.
        # INVALID_REPLICATION_FACTOR: too few unfenced brokers. INVALID_REQUEST: a topic twice.
        # NOT_CONTROLLER: forward again.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)


class CreatePartitionsRequest(
    Request[CreatePartitionsResponse],
    api_key=37,
    versions="0-3",
    flexible="2+",
    listeners=("broker", "controller"),
):
    topics: list[CreatePartitionsTopic] = field(array("CreatePartitionsTopic"), "0+", default=FRESH)
    timeout_ms: int = field(int32, "0+", default=0)
    validate_only: bool = field(boolean, "0+", default=False)

    class CreatePartitionsTopic(Struct):
        name: str = field(string, "0+", default="")
        # The new total number of partitions.
        count: int = field(int32, "0+", default=0)
        # Null: the controller places them.
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = field(
            array("CreatePartitionsAssignment"), "0+", nullable="0+", default=FRESH
        )

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int] = field(array(int32), "0+", default=FRESH)
