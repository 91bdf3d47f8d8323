"""DescribeConfigs responses, built alike for brokers and controllers.

Each role passes its own function that resolves a resource's configuration. This module builds the
response: errors per resource, the requested keys, and synonyms and documentation on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol.errors import ApiError
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from runtime.config.described import DescribedKey, chosen

Describe = Callable[[int, str], Iterable[DescribedKey]]
"""Returns the configuration of a resource, by type and name. Raises ApiError: sent per resource."""


def describe_configs(
    request: DescribeConfigsRequest, describe: Describe
) -> DescribeConfigsResponse:
    """Return, for each resource of the request, its configuration or its error."""
    return DescribeConfigsResponse(
        results=[_result(request, resource, describe) for resource in request.resources]
    )


def _result(
    request: DescribeConfigsRequest,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    describe: Describe,
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = DescribeConfigsResponse.DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        described = describe(resource.resource_type, resource.resource_name)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message or ""
        return result
    keys = resource.configuration_keys
    result.configs = [_entry(request, key) for key in chosen(described, keys)]
    return result


def _entry(
    request: DescribeConfigsRequest, described: DescribedKey
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
