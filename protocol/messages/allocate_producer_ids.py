"""AllocateProducerIds (API key 67), version 0.

A broker gets a block of producer ids from the active controller, which it assigns by
InitProducerId.

Behaviour
- Blocks never overlap and are never reused; each is first written to the metadata log. Brokers
  request the next block before the present one is used up.
- Authorisation: CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from protocol.schema import Request, Response, field, int16, int32, int64


class AllocateProducerIdsResponse(Response, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    # STALE_BROKER_EPOCH: not the present registration. NOT_CONTROLLER: find the active one.
    # UNKNOWN_SERVER_ERROR: no ids left.
    error_code: int = field(int16, "0+", default=0)
    producer_id_start: int = field(int64, "0+", default=0)
    # Number of ids from producer_id_start on that the broker may assign; 1000 in Kafka.
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
