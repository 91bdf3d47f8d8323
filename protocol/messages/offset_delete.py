"""OffsetDelete (API key 47), version 0.

Deletes committed offsets of a group for some partitions (KIP-496). Sent to the group's coordinator.

Behaviour
- Offsets of topics that the group is subscribed to stay. Partitions without an offset are not an
  error.
- Authorisation: DELETE on the group, READ on each topic.

Versions
- 0 only; never flexible.
"""

from __future__ import annotations

from protocol.schema import FRESH, Request, Response, Struct, array, field, int16, int32, string


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    # GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, NON_EMPTY_GROUP (members of another protocol type than
    # "consumer"), NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
    # GROUP_AUTHORIZATION_FAILED. The response then has no topics.
    error_code: int = field(int16, "0+", default=0)
    throttle_time_ms: int = field(int32, "0+", ignorable=True, default=0)
    topics: list[OffsetDeleteResponseTopic] = field(
        array("OffsetDeleteResponseTopic"), "0+", default=FRESH
    )

    class OffsetDeleteResponseTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = field(
            array("OffsetDeleteResponsePartition"), "0+", default=FRESH
        )

    class OffsetDeleteResponsePartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # GROUP_SUBSCRIBED_TO_TOPIC: a member reads the topic. UNKNOWN_TOPIC_OR_PARTITION,
        # TOPIC_AUTHORIZATION_FAILED.
        error_code: int = field(int16, "0+", default=0)


class OffsetDeleteRequest(
    Request[OffsetDeleteResponse], api_key=47, versions="0", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    topics: list[OffsetDeleteRequestTopic] = field(
        array("OffsetDeleteRequestTopic"), "0+", default=FRESH
    )

    class OffsetDeleteRequestTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = field(
            array("OffsetDeleteRequestPartition"), "0+", default=FRESH
        )

    class OffsetDeleteRequestPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
