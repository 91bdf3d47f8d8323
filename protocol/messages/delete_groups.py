"""DeleteGroups (API key 42), versions 0-3.

Deletes groups that have no members, with their offsets. Sent to each group's coordinator.

Behaviour
- Groups fail one by one. Authorisation: DELETE on the group.

Versions
- 2 flexible. 3 a message for each refused group.
"""

from __future__ import annotations

from protocol.schema import FRESH, Request, Response, Struct, array, field, int16, int32, string


class DeleteGroupsResponse(Response, api_key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    results: list[DeletableGroupResult] = field(array("DeletableGroupResult"), "0+", default=FRESH)

    class DeletableGroupResult(Struct):
        group_id: str = field(string, "0+", default="")
        # NON_EMPTY_GROUP: has members. GROUP_ID_NOT_FOUND. INVALID_GROUP_ID: empty.
        # NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: find the
        # coordinator, or retry later. GROUP_AUTHORIZATION_FAILED. GROUP_DELETION_FAILED, below
        # version 3 UNKNOWN_SERVER_ERROR.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "3+", nullable="3+", ignorable=True, default=None)


class DeleteGroupsRequest(
    Request[DeleteGroupsResponse], api_key=42, versions="0-3", flexible="2+", listeners=("broker",)
):
    groups_names: list[str] = field(array(string), "0+", default=FRESH)
