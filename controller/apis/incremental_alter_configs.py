"""IncrementalAlterConfigs (key 44), versions 0-1.

Behaviour: sets, deletes, appends to or subtracts from single keys of topics, groups, client
metrics, of a broker, or of all brokers (empty name). Each resource succeeds or fails alone. With
validate_only nothing is written. A request with a single resource of type BROKER_LOGGER changes the
log level of this node (KIP-412).

Errors per resource: INVALID_CONFIG (unknown key, bad value, list operation on a key that is not a
list), INVALID_REQUEST (no value, a key or resource twice, a broker key that cannot change at run
time, another resource type), UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION,
BROKER_ID_NOT_REGISTERED. For all: POLICY_VIOLATION, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.configs.change import (
    ConfigChange,
    ConfigOutcome,
    ConfigResource,
    ResourceChange,
    decide_incremental_alter_configs,
)
from controller.elections.min_isr import clearing_elr
from controller.writer.writer import Controller
from metalog.image.values import ConfigResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from serving.log_levels import ConfigChange as LevelChange
from serving.log_levels import change_levels

MIN_VERSION = 0
MAX_VERSION = 1


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Reply:
        changes = [
            ResourceChange(
                ConfigResource(resource.resource_type, resource.resource_name),
                tuple(ConfigChange(c.name, c.config_operation, c.value) for c in resource.configs),
            )
            for resource in request.resources
        ]
        if len(changes) == 1 and changes[0].resource.type == ConfigResourceType.BROKER_LOGGER:
            return _response((_change_levels(controller, changes[0], request.validate_only),))
        resources = dict.fromkeys(change.resource for change in changes)
        return controller.submit(
            clearing_elr(
                lambda view: decide_incremental_alter_configs(
                    view, changes, validate_only=request.validate_only
                )
            ),
            _response,
            fail=lambda error: _response(tuple(ConfigOutcome(r, error) for r in resources)),
        )

    table.register(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _change_levels(
    controller: Controller, change: ResourceChange, validate_only: bool
) -> ConfigOutcome:
    """Change the log level of this node. Nothing is written to the metadata log."""
    resource = change.resource
    levels = [LevelChange(*each) for each in change.changes]
    try:
        if resource.name != str(controller.settings.node_id):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"this is node {controller.settings.node_id}")
        change_levels(levels, validate_only=validate_only)
    except ApiError as error:
        return ConfigOutcome(resource, error)
    return ConfigOutcome(resource, None)


def _response(outcomes: tuple[ConfigOutcome, ...]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.text,
                resource_type=resource.type,
                resource_name=resource.name,
            )
            for resource, error in outcomes
        ]
    )
