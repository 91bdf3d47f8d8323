"""UnregisterController (API key 94), version 0.

Removes the registration of a controller that is gone permanently (KIP-1312). Forwarded to the
active controller.

Behaviour
- The voter set stays as it is; a controller that still runs registers again.
- Authorisation: ALTER on the cluster.
"""

from __future__ import annotations

from protocol.schema import Request, Response, field, int16, int32, string


class UnregisterControllerResponse(Response, api_key=94, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    # INVALID_REQUEST: the active controller itself. UNSUPPORTED_VERSION: metadata.version below 33.
    # CONTROLLER_ID_NOT_REGISTERED: no such controller. NOT_CONTROLLER: forward again.
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")


class UnregisterControllerRequest(
    Request[UnregisterControllerResponse],
    api_key=94,
    versions="0",
    flexible="0+",
    listeners=("broker", "controller"),
):
    controller_id: int = field(int32, "0+", default=0)
