"""ListConfigResources (key 74), versions 0-1 (KIP-714, KIP-1142).

Behaviour: names of resources that configuration can be set on or was set on. Version 0 lists client
metrics subscriptions alone. From version 1 on the request names kinds (none: all of them): topics
and brokers that exist, broker loggers of those brokers, groups and client metrics that have
configuration. A kind that does not exist is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.context import BrokerContext
from metalog.image.values import ConfigResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 1


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(context: RequestContext, request: ListConfigResourcesRequest) -> Reply:
        kinds = (
            request.resource_types
            if context.api_version > 0
            else [ConfigResourceType.CLIENT_METRICS]
        )
        return list_resources(broker, kinds)

    table.register(
        ApiKey.LIST_CONFIG_RESOURCES, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def list_resources(broker: BrokerContext, kinds: Sequence[int]) -> ListConfigResourcesResponse:
    """Return every resource of these kinds; an empty list requests all kinds."""
    known = {int(kind) for kind in ConfigResourceType}
    wanted = known if not kinds else set(kinds)
    if not wanted <= known:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Invalid resource types {sorted(wanted - known)}",
        )
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(wanted)
            for name in _names(broker, kind)
        ]
    )


def _names(broker: BrokerContext, kind: int) -> list[str]:
    image = broker.metadata.image
    if kind == ConfigResourceType.TOPIC:
        return broker.metadata.topic_names()
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.cluster.brokers)]
    return sorted(name for type_, name in image.configs if type_ == kind)
