"""AlterConfigs (key 33), versions 0-2.

Behaviour: replaces all dynamic values of topics, groups, client metrics, of a broker, or of all
brokers (empty name). A key that the request does not name loses its value. Clients should use
IncrementalAlterConfigs (KIP-339); the errors are the same.
"""

from __future__ import annotations

from controller.configs.change import (
    ConfigChange,
    ConfigOperation,
    ConfigOutcome,
    ConfigResource,
    ResourceChange,
    decide_alter_configs,
)
from controller.elections.min_isr import clearing_elr
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 2


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: AlterConfigsRequest) -> Reply:
        changes = [
            ResourceChange(
                ConfigResource(resource.resource_type, resource.resource_name),
                tuple(ConfigChange(c.name, ConfigOperation.SET, c.value) for c in resource.configs),
            )
            for resource in request.resources
        ]
        resources = dict.fromkeys(change.resource for change in changes)
        return controller.submit(
            clearing_elr(
                lambda view: decide_alter_configs(
                    view, changes, validate_only=request.validate_only
                )
            ),
            _response,
            fail=lambda error: _response(tuple(ConfigOutcome(r, error) for r in resources)),
        )

    table.register(ApiKey.ALTER_CONFIGS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _response(outcomes: tuple[ConfigOutcome, ...]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.text,
                resource_type=resource.type,
                resource_name=resource.name,
            )
            for resource, error in outcomes
        ]
    )
