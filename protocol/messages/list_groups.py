"""ListGroups (API key 16), versions 0-5.

Lists the groups that this broker coordinates; a client sends it to every broker.

Behaviour
- Filters ignore case; empty ones match everything.
- Authorisation: DESCRIBE on the cluster shows all, else DESCRIBE on each group.

Versions
- 3 flexible. 4 states (KIP-518). 5 types (KIP-848).
"""

from __future__ import annotations

from protocol.schema import FRESH, Request, Response, Struct, array, field, int16, int32, string


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    # COORDINATOR_LOAD_IN_PROGRESS: some groups are not loaded yet, retry.
    # COORDINATOR_NOT_AVAILABLE: the broker is stopping.
    error_code: int = field(int16, "0+", default=0)
    groups: list[ListedGroup] = field(array("ListedGroup"), "0+", default=FRESH)

    class ListedGroup(Struct):
        group_id: str = field(string, "0+", default="")
        protocol_type: str = field(string, "0+", default="")
        group_state: str = field(string, "4+", ignorable=True, default="")
        group_type: str = field(string, "5+", ignorable=True, default="")


class ListGroupsRequest(
    Request[ListGroupsResponse], api_key=16, versions="0-5", flexible="3+", listeners=("broker",)
):
    states_filter: list[str] = field(array(string), "4+", default=FRESH)
    # "classic", "consumer", "share" or "streams".
    types_filter: list[str] = field(array(string), "5+", default=FRESH)
