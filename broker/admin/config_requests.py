"""Shell: Requests that change configurations: the broker's part, then the controller's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from broker.admin.config_changes import Resource, decide_own
from broker.admin.forwarding import Forwarder
from broker.context import BrokerContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.transport.decode_queue import decode_in_slices
from protocol.transport.dispatch import Body, EncodedReply, RequestContext

_Request: TypeAlias = AlterConfigsRequest | IncrementalAlterConfigsRequest
_Response: TypeAlias = AlterConfigsResponse | IncrementalAlterConfigsResponse
R = TypeVar("R", AlterConfigsRequest, IncrementalAlterConfigsRequest)


async def change_configs(
    broker: BrokerContext,
    forwarder: Forwarder,
    context: RequestContext,
    request: R,
    resource_of: Callable[[Any], Resource],
) -> Body:
    """Answer each resource: those decided here first, then those that the controller decides."""
    outcomes = _own_outcomes(broker, request, resource_of)
    forwarded = [
        resource
        for resource in request.resources
        if (resource.resource_type, resource.resource_name) not in outcomes
    ]
    if len(forwarded) == len(request.resources):
        return await forwarder.handle(context, request)
    response: _Response = _response_class(request)(
        responses=[
            _response_class(request).AlterConfigsResourceResponse(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.text,
                resource_type=resource_type,
                resource_name=resource_name,
            )
            for (resource_type, resource_name), error in outcomes.items()
        ]
    )
    if forwarded:
        rest = await forwarder.handle(context, request.replace(resources=forwarded))
        decoded: Any = await _decoded(request, context.api_version, rest)
        response.responses += decoded.responses
    return response


def _own_outcomes(
    broker: BrokerContext, request: _Request, resource_of: Callable[[Any], Resource]
) -> dict[tuple[int, str], ApiError | None]:
    replace = isinstance(request, AlterConfigsRequest)
    named = Counter((each.resource_type, each.resource_name) for each in request.resources)
    outcomes: dict[tuple[int, str], ApiError | None] = {}
    for each in request.resources:
        key = (each.resource_type, each.resource_name)
        if key in outcomes:
            continue
        try:
            if named[key] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "duplicate resource in the request")
            resource = resource_of(each)
            if decide_own(broker, resource, replace=replace, validate_only=request.validate_only):
                outcomes[key] = None
        except ApiError as error:
            outcomes[key] = error.as_value()
    return outcomes


def _response_class(request: _Request) -> Any:
    return request.response_class()


async def _decoded(request: _Request, version: int, body: Body) -> _Response:
    if not isinstance(body, EncodedReply):
        assert isinstance(body, AlterConfigsResponse | IncrementalAlterConfigsResponse)
        return body
    parts = b"".join(body.parts)
    response, _ = await decode_in_slices(_response_class(request), parts, version)
    assert isinstance(response, AlterConfigsResponse | IncrementalAlterConfigsResponse)
    return response
