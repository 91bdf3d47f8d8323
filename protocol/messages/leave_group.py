"""LeaveGroup (API key 13), versions 0-5.

Removes members from a classic group at once instead of waiting for their session timeout.

Behaviour
- Dynamic members leave when they close; static members only by an administrator's request with the
  instance id (the member id may be empty then). The group rebalances.
- Authorisation: READ on the group.

Versions
- 0-2 one member. 3 several, by member id or instance id. 4 flexible. 5 reason (KIP-800).
"""

from __future__ import annotations

from protocol.schema import FRESH, Request, Response, Struct, array, field, int16, int32, string


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    # Errors of the coordinator and the group; in 0-2 also of the member.
    error_code: int = field(int16, "0+", default=0)
    members: list[MemberResponse] = field(array("MemberResponse"), "3+", default=FRESH)

    class MemberResponse(Struct):
        member_id: str = field(string, "3+", default="")
        group_instance_id: str | None = field(string, "3+", nullable="3+", default="")
        # UNKNOWN_MEMBER_ID: not a member. FENCED_INSTANCE_ID: the instance id now has another
        # member id.
        error_code: int = field(int16, "3+", default=0)


class LeaveGroupRequest(
    Request[LeaveGroupResponse], api_key=13, versions="0-5", flexible="4+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    member_id: str = field(string, "0-2", default="")
    members: list[MemberIdentity] = field(array("MemberIdentity"), "3+", default=FRESH)

    class MemberIdentity(Struct):
        member_id: str = field(string, "3+", default="")
        group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
        reason: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)
