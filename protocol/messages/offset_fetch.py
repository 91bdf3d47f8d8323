"""OffsetFetch (API key 9), versions 1-10.

Reads committed offsets of groups from their coordinator.

Behaviour
- A partition without a commit has offset -1 and no error. Null topics means all.
- With `require_stable`, a partition with an offset of an open transaction gets
  UNSTABLE_OFFSET_COMMIT (KIP-447); the client retries.
- A group that does not exist has no offsets; that is no error.
- Authorisation: DESCRIBE on the group and on each topic; a response for all topics omits those that
  the client may not see.

Versions
- 2 top-level error code, null topics. 5 leader epoch. 6 flexible. 7 require stable.
- 8 several groups in a request: fields of one group end with 7. 9 member id and epoch (KIP-848).
- 10 topic ids.
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
    int16,
    int32,
    int64,
    string,
    uuid,
)


class OffsetFetchResponse(Response, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = field(int32, "3+", ignorable=True, default=0)
    topics: list[OffsetFetchResponseTopic] = field(
        array("OffsetFetchResponseTopic"), "0-7", default=FRESH
    )
    # NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
    # GROUP_AUTHORIZATION_FAILED. Version 1 lacks the field: each partition has the error.
    error_code: int = field(int16, "2-7", ignorable=True, default=0)
    groups: list[OffsetFetchResponseGroup] = field(
        array("OffsetFetchResponseGroup"), "8+", default=FRESH
    )

    class OffsetFetchResponseTopic(Struct):
        name: str = field(string, "0-7", default="")
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = field(
            array("OffsetFetchResponsePartition"), "0-7", default=FRESH
        )

    class OffsetFetchResponsePartition(Struct):
        partition_index: int = field(int32, "0-7", default=0)
        committed_offset: int = field(int64, "0-7", default=0)
        committed_leader_epoch: int = field(int32, "5-7", ignorable=True, default=-1)
        metadata: str | None = field(string, "0-7", nullable="0-7", default="")
        error_code: int = field(int16, "0-7", default=0)

    class OffsetFetchResponseGroup(Struct):
        group_id: str = field(string, "8+", default="")
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = field(
            array("OffsetFetchResponseTopics"), "8+", default=FRESH
        )
        # As above, for one group; also UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
        error_code: int = field(int16, "8+", default=0)

    class OffsetFetchResponseTopics(Struct):
        name: str = field(string, "8-9", ignorable=True, default="")
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = field(
            array("OffsetFetchResponsePartitions"), "8+", default=FRESH
        )

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int = field(int32, "8+", default=0)
        # -1: no commit.
        committed_offset: int = field(int64, "8+", default=0)
        committed_leader_epoch: int = field(int32, "8+", ignorable=True, default=-1)
        metadata: str | None = field(string, "8+", nullable="8+", default="")
        # UNSTABLE_OFFSET_COMMIT: retry. UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED.
        error_code: int = field(int16, "8+", default=0)


class OffsetFetchRequest(
    Request[OffsetFetchResponse], api_key=9, versions="1-10", flexible="6+", listeners=("broker",)
):
    group_id: str = field(string, "0-7", default="")
    # Null from 2 on: all topics.
    topics: list[OffsetFetchRequestTopic] | None = field(
        array("OffsetFetchRequestTopic"), "0-7", nullable="2-7", default=FRESH
    )
    groups: list[OffsetFetchRequestGroup] = field(
        array("OffsetFetchRequestGroup"), "8+", default=FRESH
    )
    require_stable: bool = field(boolean, "7+", default=False)

    class OffsetFetchRequestTopic(Struct):
        name: str = field(string, "0-7", default="")
        partition_indexes: list[int] = field(array(int32), "0-7", default=FRESH)

    class OffsetFetchRequestGroup(Struct):
        group_id: str = field(string, "8+", default="")
        member_id: str | None = field(string, "9+", nullable="9+", ignorable=True, default=None)
        # -1 unless the sender is a member of the consumer protocol; checked if given.
        member_epoch: int = field(int32, "9+", ignorable=True, default=-1)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = field(
            array("OffsetFetchRequestTopics"), "8+", nullable="8+", default=FRESH
        )

    class OffsetFetchRequestTopics(Struct):
        name: str = field(string, "8-9", ignorable=True, default="")
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        partition_indexes: list[int] = field(array(int32), "8+", default=FRESH)
