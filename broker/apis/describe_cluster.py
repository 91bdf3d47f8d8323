"""DescribeCluster (key 60), versions 0-2.

Behaviour: cluster id, a broker for admin requests, and the brokers that are alive on the client's
listener. Version 1 adds the kind of endpoint (KIP-919): to a request for controllers a broker
answers MISMATCHED_ENDPOINT_TYPE, to any other kind UNSUPPORTED_ENDPOINT_TYPE. Version 2 can include
fenced brokers.
"""

from __future__ import annotations

from typing import Final

from broker.context import BrokerContext
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from serving.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED

MIN_VERSION: Final = 0
MAX_VERSION: Final = 2

BROKERS: Final = 1
CONTROLLERS: Final = 2


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(context: RequestContext, request: DescribeClusterRequest) -> Reply:
        return describe(broker, context.listener, request)

    table.register(
        ApiKey.DESCRIBE_CLUSTER, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def describe(
    broker: BrokerContext, listener: str, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Return the cluster as visible to a client on `listener`."""
    if request.endpoint_type == CONTROLLERS:
        raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This endpoint is a broker")
    if request.endpoint_type != BROKERS:
        raise ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, None)
    metadata = broker.metadata
    response = DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_hint(listener),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
    for broker_id, registered in sorted(metadata.image.cluster.brokers.items()):
        endpoint = registered.endpoint(listener)
        if endpoint is None or (registered.fenced and not request.include_fenced_brokers):
            continue
        response.brokers.append(
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=registered.rack,
                is_fenced=registered.fenced,
            )
        )
    return response
