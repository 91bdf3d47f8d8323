"""Heartbeat (API key 12), versions 0-4.

Keeps a member of a classic group alive and notifies it of a rebalance.

Behaviour
- A member that sends neither this nor a join, sync or commit for its session timeout is removed.
- Authorisation: READ on the group.

Versions
- 3 static members. 4 flexible.
"""

from __future__ import annotations

from protocol.schema import Request, Response, field, int16, int32, string


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    # REBALANCE_IN_PROGRESS: rejoin, the member is still known. ILLEGAL_GENERATION,
    # UNKNOWN_MEMBER_ID: the member was removed, join as a new one. FENCED_INSTANCE_ID: fatal.
    # NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: find the coordinator.
    error_code: int = field(int16, "0+", default=0)


class HeartbeatRequest(
    Request[HeartbeatResponse], api_key=12, versions="0-4", flexible="4+", listeners=("broker",)
):
    group_id: str = field(string, "0+", default="")
    generation_id: int = field(int32, "0+", default=0)
    member_id: str = field(string, "0+", default="")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
