"""DescribeGroups (API key 15), versions 0-6.

Returns the state, protocol, members, metadata and assignments of classic groups, for
administrators.

Behaviour
- A group that does not exist has state "Dead" and no error; from 6 on GROUP_ID_NOT_FOUND, too
  (KIP-1043).
- Metadata and assignments are filled in only while the group is stable.
- Authorisation: DESCRIBE on the group.

Versions
- 3 authorised operations. 4 instance ids. 5 flexible. 6 GROUP_ID_NOT_FOUND and error message.
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


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    groups: list[DescribedGroup] = field(array("DescribedGroup"), "0+", default=FRESH)

    class DescribedGroup(Struct):
        # NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: find the
        # coordinator, or retry later. GROUP_ID_NOT_FOUND (6+), GROUP_AUTHORIZATION_FAILED.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "6+", nullable="6+", default=None)
        group_id: str = field(string, "0+", default="")
        # PreparingRebalance, CompletingRebalance, Stable, Empty or Dead.
        group_state: str = field(string, "0+", default="")
        protocol_type: str = field(string, "0+", default="")
        # Name of the chosen assignor.
        protocol_data: str = field(string, "0+", default="")
        members: list[DescribeGroupsResponse.DescribedGroupMember] = field(
            array("DescribedGroupMember"), "0+", default=FRESH
        )
        authorized_operations: int = field(int32, "3+", default=-2147483648)

    class DescribedGroupMember(Struct):
        member_id: str = field(string, "0+", default="")
        group_instance_id: str | None = field(
            string, "4+", nullable="4+", ignorable=True, default=None
        )
        client_id: str = field(string, "0+", default="")
        client_host: str = field(string, "0+", default="")
        # The member's metadata for the chosen protocol.
        member_metadata: bytes = field(bytes_, "0+", default=b"")
        member_assignment: bytes = field(bytes_, "0+", default=b"")


class DescribeGroupsRequest(
    Request[DescribeGroupsResponse],
    api_key=15,
    versions="0-6",
    flexible="5+",
    listeners=("broker",),
):
    groups: list[str] = field(array(string), "0+", default=FRESH)
    include_authorized_operations: bool = field(boolean, "3+", default=False)
