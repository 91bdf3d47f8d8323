"""DeleteShareGroupOffsets (API key 92), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int16,
    int32,
    string,
    uuid,
)


class DeleteShareGroupOffsetsResponse(Response, api_key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(
        array("DeleteShareGroupOffsetsResponseTopic"), "0+", default=FRESH
    )

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = field(string, "0+", default="")
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)


class DeleteShareGroupOffsetsRequest(
    Request[DeleteShareGroupOffsetsResponse],
    api_key=92,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(
        array("DeleteShareGroupOffsetsRequestTopic"), "0+", default=FRESH
    )

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = field(string, "0+", default="")
