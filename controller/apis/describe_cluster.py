"""DescribeCluster (key 60), versions 0-2.

Behaviour: on a controller listener, the controllers that registered an endpoint on that listener,
and the active one (KIP-919). Any controller answers, from its committed metadata.

Versions: 1 adds the endpoint type, which must be "controllers" here; 2 fenced brokers, which do not
apply to controllers.

Errors: UNSUPPORTED_VERSION (no metadata.version is final, or controllers do not register at its
level; Kafka 4.4 checks that first), MISMATCHED_ENDPOINT_TYPE (the request is for brokers),
UNSUPPORTED_ENDPOINT_TYPE. Version 0 has no endpoint type, so it always gets INVALID_REQUEST.
"""

from __future__ import annotations

from controller.writer.writer import Controller
from metalog.image.features import CONTROLLER_REGISTRATION_LEVEL, METADATA_VERSION
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from serving.authorized_operations import CLUSTER_OPERATIONS

MIN_VERSION = 0
MAX_VERSION = 2

BROKERS = 1
CONTROLLERS = 2


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: DescribeClusterRequest) -> Reply:
        image = controller.committed_image
        if (image.metadata_version or 0) < CONTROLLER_REGISTRATION_LEVEL:
            return _no_registrations(image.metadata_version)
        if request.endpoint_type != CONTROLLERS:
            return _mismatch(context.api_version, request.endpoint_type)
        response = DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=controller.settings.cluster_id,
            controller_id=controller.leader_id,
        )
        for node_id, node in sorted(image.cluster.controllers.items()):
            for endpoint in node.endpoints:
                if endpoint.name == context.listener:
                    response.brokers.append(
                        DescribeClusterResponse.DescribeClusterBroker(
                            broker_id=node_id, host=endpoint.host, port=endpoint.port
                        )
                    )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    table.register(
        ApiKey.DESCRIBE_CLUSTER, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _no_registrations(level: int | None) -> DescribeClusterResponse:
    needed = f"controllers register from {METADATA_VERSION} {CONTROLLER_REGISTRATION_LEVEL} on"
    state = f"no {METADATA_VERSION} is final" if level is None else f"it is {level}"
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=f"{needed}; {state}"
    )


def _mismatch(version: int, endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type != BROKERS:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"invalid endpoint type {endpoint_type}"
    else:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if version else ErrorCode.INVALID_REQUEST
        message = "this is a controller's endpoint, but the request is for brokers"
    return DescribeClusterResponse(error_code=code, error_message=message)
