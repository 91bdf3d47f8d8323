"""JoinGroup (API key 11), versions 0-9.

Enters a classic group, or rejoins it for a rebalance. The response waits until the group is
complete: all known members have joined, or the rebalance timeout has passed.

Behaviour
- A first join without a member id gets MEMBER_ID_REQUIRED and an id for the next join (4+,
  KIP-394), so that clients that die in between leave no members behind. Static members
  (`group_instance_id`) join at once: they replace their previous incarnation.
- The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members.
- The leader, the first to join, gets all members with their metadata; others an empty list. The
  members vote on a protocol that all of them support.
- Authorisation: READ on the group.

Versions
- 0 the session timeout is the rebalance timeout too. 4 MEMBER_ID_REQUIRED. 5 static members.
- 6 flexible. 7 protocol type in the response (KIP-559). 8 reason. 9 skip assignment.
"""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    bytes_,
    field,
    int16,
    int32,
    string,
)


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True, default=0)
    # MEMBER_ID_REQUIRED: join again with this member id. UNKNOWN_MEMBER_ID: drop the id and join as
    # a new member. FENCED_INSTANCE_ID: another member has the static identity, fatal.
    # GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT,
    # INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED: fatal. NOT_COORDINATOR,
    # COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: find the coordinator, or retry later.
    # REBALANCE_IN_PROGRESS: join again.
    error_code: int = field(int16, "0+", default=0)
    # -1 with an error.
    generation_id: int = field(int32, "0+", default=-1)
    protocol_type: str | None = field(string, "7+", nullable="7+", ignorable=True, default=None)
    # Null from 7 on with an error; before, empty.
    protocol_name: str | None = field(string, "0+", nullable="7+", default="")
    leader: str = field(string, "0+", default="")
    # Signals to a returning static leader that the group keeps its assignment.
    skip_assignment: bool = field(boolean, "9+", default=False)
    member_id: str = field(string, "0+", default="")
    members: list[JoinGroupResponseMember] = field(
        array("JoinGroupResponseMember"), "0+", default=FRESH
    )

    class JoinGroupResponseMember(Struct):
        member_id: str = field(string, "0+", default="")
        group_instance_id: str | None = field(
            string, "5+", nullable="5+", ignorable=True, default=None
        )
        metadata: bytes = field(bytes_, "0+", default=b"")


class JoinGroupRequest(
    Request[JoinGroupResponse], api_key=11, versions="0-9", flexible="6+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    # Outside group.min/max.session.timeout.ms: INVALID_SESSION_TIMEOUT.
    session_timeout_ms: int = field(int32, "0+", default=0)
    # -1: use the session timeout.
    rebalance_timeout_ms: int = field(int32, "1+", ignorable=True, default=-1)
    # Empty in the first join.
    member_id: str = field(string, "0+", default="")
    group_instance_id: str | None = field(string, "5+", nullable="5+", default=None)
    # "consumer" for consumers; the same for all members.
    protocol_type: str = field(string, "0+", default="")
    # In order of preference. An empty list, or no protocol in common with the group:
    # INCONSISTENT_GROUP_PROTOCOL.
    protocols: list[JoinGroupRequestProtocol] = field(
        array("JoinGroupRequestProtocol"), "0+", default=FRESH
    )
    reason: str | None = field(string, "8+", nullable="8+", ignorable=True, default=None)

    class JoinGroupRequestProtocol(Struct):
        name: str = field(string, "0+", default="")
        metadata: bytes = field(bytes_, "0+", default=b"")
