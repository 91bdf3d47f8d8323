"""ShareGroupDescribe (API key 77), version 1."""

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
    int16,
    int32,
    string,
    struct,
    uuid,
)


class ShareGroupDescribeResponse(Response, api_key=77, versions="1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    groups: list[DescribedGroup] = field(array("DescribedGroup"), "0+", default=FRESH)

    class TopicPartitions(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        topic_name: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = field(
            array("TopicPartitions"), "0+", default=FRESH
        )

    class DescribedGroup(Struct):
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default=None)
        group_id: str = field(string, "0+", default="")
        group_state: str = field(string, "0+", default="")
        group_epoch: int = field(int32, "0+", default=0)
        assignment_epoch: int = field(int32, "0+", default=0)
        assignor_name: str = field(string, "0+", default="")
        members: list[ShareGroupDescribeResponse.Member] = field(
            array("Member"), "0+", default=FRESH
        )
        authorized_operations: int = field(int32, "0+", default=-2147483648)

    class Member(Struct):
        member_id: str = field(string, "0+", default="")
        rack_id: str | None = field(string, "0+", nullable="0+", default=None)
        member_epoch: int = field(int32, "0+", default=0)
        client_id: str = field(string, "0+", default="")
        client_host: str = field(string, "0+", default="")
        subscribed_topic_names: list[str] = field(array(string), "0+", default=FRESH)
        assignment: ShareGroupDescribeResponse.Assignment = field(
            struct("Assignment"), "0+", default=FRESH
        )


class ShareGroupDescribeRequest(
    Request[ShareGroupDescribeResponse],
    api_key=77,
    versions="1",
    flexible="0+",
    listeners=("broker",),
):
    group_ids: list[str] = field(array(string), "0+", default=FRESH)
    include_authorized_operations: bool = field(boolean, "0+", default=False)
