"""IncrementalAlterConfigs (key 44), versions 0-1 (KIP-339).

Behaviour: changes single keys of topics, brokers, groups and client metrics, which the controller
decides, and levels of this broker's loggers (KIP-412), which it changes itself. Values of brokers
must fit this broker's static configuration too.

Errors per resource: INVALID_REQUEST (another broker's, a value that does not fit), INVALID_CONFIG
(no such logger or level), and the controller's errors.
"""

from __future__ import annotations

from typing import Final

from broker.admin.config_changes import Resource
from broker.admin.config_requests import change_configs
from broker.admin.forwarding import Forwarder
from broker.context import BrokerContext
from protocol.api_keys import ApiKey
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.transport.dispatch import Body, HandlerTable, RequestContext
from serving.log_levels import ConfigChange

MIN_VERSION: Final = 0
MAX_VERSION: Final = 1


def register(table: HandlerTable, broker: BrokerContext, forwarder: Forwarder) -> None:
    async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Body:
        return await change_configs(broker, forwarder, context, request, _resource)

    table.register(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _resource(given: IncrementalAlterConfigsRequest.AlterConfigsResource) -> Resource:
    return Resource(
        given.resource_type,
        given.resource_name,
        tuple(ConfigChange(each.name, each.config_operation, each.value) for each in given.configs),
    )
