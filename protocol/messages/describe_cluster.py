"""DescribeCluster (API key 60), versions 0-2.

Returns cluster id, controller and the nodes of a cluster: brokers or controllers (KIP-700,
KIP-919).

Behaviour
- A broker returns brokers, a controller listener controllers. As controller, a broker returns a
  random live broker (which forwards), a controller the active one.
- Authorisation: none; DESCRIBE on the cluster for the authorised operations.

Versions
- 1 endpoint type. 2 fenced brokers on demand (KIP-1073).
"""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    string,
)


class DescribeClusterResponse(Response, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    # MISMATCHED_ENDPOINT_TYPE: use the other kind of listener. UNSUPPORTED_ENDPOINT_TYPE: neither 1
    # nor 2.
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    endpoint_type: int = field(int8, "1+", default=1)
    cluster_id: str = field(string, "0+", default="")
    controller_id: int = field(int32, "0+", default=-1)
    # With the addresses of the listener that received the request.
    brokers: list[DescribeClusterBroker] = field(
        array("DescribeClusterBroker"), "0+", default=FRESH
    )
    # One bit per operation; the smallest int32 if not requested.
    cluster_authorized_operations: int = field(int32, "0+", default=-2147483648)

    class DescribeClusterBroker(Struct):
        broker_id: int = field(int32, "0+", default=0)
        host: str = field(string, "0+", default="")
        port: int = field(int32, "0+", default=0)
        rack: str | None = field(string, "0+", nullable="0+", default=None)
        is_fenced: bool = field(boolean, "2+", default=False)


class DescribeClusterRequest(
    Request[DescribeClusterResponse],
    api_key=60,
    versions="0-2",
    flexible="0+",
    listeners=("broker", "controller"),
):
    include_cluster_authorized_operations: bool = field(boolean, "0+", default=False)
    # 1 brokers, 2 controllers.
    endpoint_type: int = field(int8, "1+", default=1)
    include_fenced_brokers: bool = field(boolean, "2+", default=False)
