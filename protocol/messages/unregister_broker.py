"""UnregisterBroker (API key 64), version 0.

Removes the registration of a broker that is gone permanently. Forwarded to the active controller.

Behaviour
- Its replicas stay assigned; if the broker starts again, it registers again.
- Authorisation: ALTER on the cluster.
"""

from __future__ import annotations

from protocol.schema import Request, Response, field, int16, int32, string


class UnregisterBrokerResponse(Response, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    # BROKER_ID_NOT_REGISTERED: no such broker. NOT_CONTROLLER: forward again. REQUEST_TIMED_OUT.
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default="")


class UnregisterBrokerRequest(
    Request[UnregisterBrokerResponse],
    api_key=64,
    versions="0",
    flexible="0+",
    listeners=("broker", "controller"),
):
    broker_id: int = field(int32, "0+", default=0)
