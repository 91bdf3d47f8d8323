"""AlterConfigs (key 33), versions 0-2.

Behaviour: replaces all dynamic values of topics, brokers, groups and client metrics; the controller
decides. Values of brokers must fit this broker's static configuration too. Clients should use
IncrementalAlterConfigs (KIP-339).

Errors per resource: those of IncrementalAlterConfigs.
"""

from __future__ import annotations

from typing import Final

from broker.admin.config_changes import Resource
from broker.admin.config_requests import change_configs
from broker.admin.forwarding import Forwarder
from broker.context import BrokerContext
from protocol.api_keys import ApiKey
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.transport.dispatch import Body, HandlerTable, RequestContext
from serving.log_levels import ConfigChange, LevelOperation

MIN_VERSION: Final = 0
MAX_VERSION: Final = 2


def register(table: HandlerTable, broker: BrokerContext, forwarder: Forwarder) -> None:
    async def handle(context: RequestContext, request: AlterConfigsRequest) -> Body:
        return await change_configs(broker, forwarder, context, request, _resource)

    table.register(ApiKey.ALTER_CONFIGS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _resource(given: AlterConfigsRequest.AlterConfigsResource) -> Resource:
    return Resource(
        given.resource_type,
        given.resource_name,
        tuple(ConfigChange(each.name, LevelOperation.SET, each.value) for each in given.configs),
    )
