"""CreatePartitions (API key 37), versions 0-3."""

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
        count: int = field(int32, "0+", default=0)
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = field(
            array("CreatePartitionsAssignment"), "0+", nullable="0+", default=FRESH
        )

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int] = field(array(int32), "0+", default=FRESH)
