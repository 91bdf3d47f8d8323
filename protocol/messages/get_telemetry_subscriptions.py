"""GetTelemetrySubscriptions (API key 71), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    string,
    uuid,
)


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    client_instance_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    subscription_id: int = field(int32, "0+", default=0)
    accepted_compression_types: list[int] = field(array(int8), "0+", default=FRESH)
    push_interval_ms: int = field(int32, "0+", default=0)
    telemetry_max_bytes: int = field(int32, "0+", default=0)
    delta_temporality: bool = field(boolean, "0+", default=False)
    requested_metrics: list[str] = field(array(string), "0+", default=FRESH)


class GetTelemetrySubscriptionsRequest(
    Request[GetTelemetrySubscriptionsResponse],
    api_key=71,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    client_instance_id: bytes = field(uuid, "0+", default=ZERO_UUID)
