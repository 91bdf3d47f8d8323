"""SyncGroup (API key 14), versions 0-5.

Distributes the assignment of a classic group. The leader sends it; all members wait for it.

Behaviour
- Followers' requests wait until the leader's assignment has arrived and is written to the offsets
  topic. If it does not arrive within the rebalance timeout, the group rebalances again.
- In a stable group the present assignment is returned at once.
- Authorisation: READ on the group.

Versions
- 3 static members. 4 flexible. 5 protocol type and name are checked and returned (KIP-559).
"""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    bytes_,
    field,
    int16,
    int32,
    string,
)


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    # REBALANCE_IN_PROGRESS: rejoin. ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID: join as a new member.
    # INCONSISTENT_GROUP_PROTOCOL: type or name differ from the group's. FENCED_INSTANCE_ID: fatal.
    # NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: find the
    # coordinator, or retry later.
    error_code: int = field(int16, "0+", default=0)
    protocol_type: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    protocol_name: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    assignment: bytes = field(bytes_, "0+", default=b"")


class SyncGroupRequest(
    Request[SyncGroupResponse], api_key=14, versions="0-5", flexible="4+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    generation_id: int = field(int32, "0+", default=0)
    member_id: str = field(string, "0+", default="")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
    protocol_type: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    protocol_name: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
    # Only from the leader; a member that is missing in it gets an empty assignment.
    assignments: list[SyncGroupRequestAssignment] = field(
        array("SyncGroupRequestAssignment"), "0+", default=FRESH
    )

    class SyncGroupRequestAssignment(Struct):
        member_id: str = field(string, "0+", default="")
        assignment: bytes = field(bytes_, "0+", default=b"")
