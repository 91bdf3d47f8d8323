"""DescribeCluster (API key 60), versions 0-2."""

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
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    endpoint_type: int = field(int8, "1+", default=1)
    cluster_id: str = field(string, "0+", default="")
    controller_id: int = field(int32, "0+", default=-1)
    brokers: list[DescribeClusterBroker] = field(
        array("DescribeClusterBroker"), "0+", default=FRESH
    )
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
    endpoint_type: int = field(int8, "1+", default=1)
    include_fenced_brokers: bool = field(boolean, "2+", default=False)
