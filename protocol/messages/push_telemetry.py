"""PushTelemetry (API key 72), version 0."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import Request, Response, boolean, bytes_, field, int8, int16, int32, uuid


class PushTelemetryResponse(Response, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)


class PushTelemetryRequest(
    Request[PushTelemetryResponse], api_key=72, versions="0", flexible="0+", listeners=("broker",)
):
    client_instance_id: bytes = field(uuid, "0+", default=ZERO_UUID)
    subscription_id: int = field(int32, "0+", default=0)
    terminating: bool = field(boolean, "0+", default=False)
    compression_type: int = field(int8, "0+", default=0)
    metrics: bytes = field(bytes_, "0+", default=b"")
