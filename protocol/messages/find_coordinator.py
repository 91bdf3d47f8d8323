"""FindCoordinator (API key 10), versions 0-6.

Finds the broker that coordinates a group, a transaction or a share group's partition: the leader of
the partition of the internal topic that the key hashes to.

Behaviour
- The broker creates a missing internal topic, and returns COORDINATOR_NOT_AVAILABLE until then.
- Authorisation: DESCRIBE on the group or the transactional id.

Versions
- 0 groups only. 1 key type, error message. 3 flexible. 4 several keys (KIP-699): the fields for a
  single key end with 3. 5 TRANSACTION_ABORTABLE. 6 share groups (KIP-932).
"""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int8,
    int16,
    int32,
    string,
)


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    # As in a Coordinator entry.
    error_code: int = field(int16, "0-3", default=0)
    error_message: str | None = field(string, "1-3", nullable="1-3", ignorable=True, default="")
    node_id: int = field(int32, "0-3", default=0)
    host: str = field(string, "0-3", default="")
    port: int = field(int32, "0-3", default=0)
    coordinators: list[Coordinator] = field(array("Coordinator"), "4+", default=FRESH)

    class Coordinator(Struct):
        key: str = field(string, "4+", default="")
        node_id: int = field(int32, "4+", default=0)
        host: str = field(string, "4+", default="")
        port: int = field(int32, "4+", default=0)
        # COORDINATOR_NOT_AVAILABLE: no leader for the partition yet, retry. INVALID_GROUP_ID:
        # empty. GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED: fatal for the
        # client. node_id is -1 with an error.
        error_code: int = field(int16, "4+", default=0)
        error_message: str | None = field(string, "4+", nullable="4+", ignorable=True, default="")


class FindCoordinatorRequest(
    Request[FindCoordinatorResponse],
    api_key=10,
    versions="0-6",
    flexible="3+",
    listeners=("broker",),
):
    key: str = field(string, "0-3", default="")
    # 0 group, 1 transactional id, 2 share group partition ("group:topic id:partition"); others:
    # INVALID_REQUEST.
    key_type: int = field(int8, "1+", default=0)
    coordinator_keys: list[str] = field(array(string), "4+", default=FRESH)
