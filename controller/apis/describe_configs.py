"""DescribeConfigs (key 32), versions 1-4.

Behaviour: on a controller listener, topics, the cluster-wide dynamic defaults (broker with an empty
name), this controller's own node, its loggers, groups and client metrics, from what is committed.
No keys, null or empty, means all of them. Sensitive values are null.

Versions: 1 has synonyms; 3 types and documentation.

Errors per resource: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (another
node's id, or another kind of resource).
"""

from __future__ import annotations

from controller.described_configs import describe_resource
from controller.driver import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ApiError
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from runtime.config.described import DescribedKey, chosen

MIN_VERSION = 1
MAX_VERSION = 4


def register(table: HandlerTable, controller: Controller) -> None:
    """Serve the API from `table`."""

    def handle(context: RequestContext, request: DescribeConfigsRequest) -> Reply:
        return DescribeConfigsResponse(
            results=[_result(controller, request, resource) for resource in request.resources]
        )

    table.register(
        ApiKey.DESCRIBE_CONFIGS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _result(
    controller: Controller,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = DescribeConfigsResponse.DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        described = describe_resource(
            controller.committed_view(), resource.resource_type, resource.resource_name
        )
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.text
        return result
    keys = resource.configuration_keys
    result.configs = [_entry(key, request) for key in chosen(described, keys)]
    return result


def _entry(
    described: DescribedKey, request: DescribeConfigsRequest
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    value = described.value
    key = value.key
    entry = DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=key.name,
        value=value.value,
        read_only=described.read_only,
        config_source=value.source,
        is_sensitive=key.sensitive,
        config_type=key.type,
        documentation=key.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        entry.synonyms = [
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in value.synonyms
        ]
    return entry
