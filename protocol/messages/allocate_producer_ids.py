"""AllocateProducerIds (API key 67), version 0."""

from __future__ import annotations

from protocol.schema import Request, Response, field, int16, int32, int64


class AllocateProducerIdsResponse(Response, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    producer_id_start: int = field(int64, "0+", default=0)
    producer_id_len: int = field(int32, "0+", default=0)


class AllocateProducerIdsRequest(
    Request[AllocateProducerIdsResponse],
    api_key=67,
    versions="0",
    flexible="0+",
    listeners=("controller",),
):
    broker_id: int = field(int32, "0+", default=0)
    broker_epoch: int = field(int64, "0+", default=-1)
