"""The answer to DescribeConfigs, the same from a broker and from a controller.

What a resource's configuration is, each of them knows by itself; how it is told is here: errors per
resource, the keys that were asked for, synonyms and documentation if they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol.errors import ApiError
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from runtime.config.described import DescribedKey, chosen

Describe = Callable[[int, str], Iterable[DescribedKey]]
"""The configuration of a resource by type and name. Raises ApiError."""


def describe_configs(
    request: DescribeConfigsRequest, describe: Describe
) -> DescribeConfigsResponse:
    """Every resource of the request with its configuration, or why there is none."""
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
