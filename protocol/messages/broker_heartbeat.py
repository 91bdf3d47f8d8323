"""BrokerHeartbeat (API key 63), versions 0-2."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    array,
    boolean,
    field,
    int16,
    int32,
    int64,
    uuid,
)


class BrokerHeartbeatResponse(Response, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    is_caught_up: bool = field(boolean, "0+", default=False)
    is_fenced: bool = field(boolean, "0+", default=True)
    should_shut_down: bool = field(boolean, "0+", default=False)


class BrokerHeartbeatRequest(
    Request[BrokerHeartbeatResponse],
    api_key=63,
    versions="0-2",
    flexible="0+",
    listeners=("controller",),
):
    broker_id: int = field(int32, "0+", default=0)
    broker_epoch: int = field(int64, "0+", default=-1)
    current_metadata_offset: int = field(int64, "0+", default=0)
    want_fence: bool = field(boolean, "0+", default=False)
    want_shut_down: bool = field(boolean, "0+", default=False)
    offline_log_dirs: list[bytes] = field(array(uuid), "1+", tag=0, default=FRESH)
    cordoned_log_dirs: list[bytes] | None = field(
        array(uuid), "2+", nullable="2+", tag=1, default=None
    )
