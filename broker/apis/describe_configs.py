"""DescribeConfigs (key 32), versions 1-4.

Behaviour: the configuration in effect for topics, brokers (this one, by its id, or with an empty
name the cluster-wide dynamic defaults), broker loggers, groups and client metrics. No keys, null or
empty, means all of them. Sensitive values are null. Synonyms (version 1) list every source of a
value, in the order of precedence; types and documentation come from version 3 on.

Errors per resource: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST for
another broker's id and for kinds of resource that do not exist. GROUP_ID_NOT_FOUND is never
returned: a group without configuration has the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from broker.context import BrokerContext
from metalog.image.values import ConfigResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.topic_name import topic_name_problem
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from runtime.config.described import (
    DescribedKey,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_node,
    describe_topic,
)
from serving.config_entries import describe_configs
from serving.log_levels import current_level

MIN_VERSION: Final = 1
MAX_VERSION: Final = 4


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(_context: RequestContext, request: DescribeConfigsRequest) -> Reply:
        return describe_configs(request, partial(_described, broker))

    table.register(
        ApiKey.DESCRIBE_CONFIGS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _described(broker: BrokerContext, resource_type: int, name: str) -> list[DescribedKey]:
    if resource_type == ConfigResourceType.TOPIC:
        return _topic(broker, name)
    if resource_type == ConfigResourceType.BROKER:
        return _broker(broker, name)
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        _require_own_id(broker, name)
        return describe_loggers(current_level())
    if resource_type == ConfigResourceType.GROUP:
        _require_name(name, "A group's configuration needs a group id")
        overrides = broker.metadata.config_overrides(ConfigResourceType.GROUP, name)
        return describe_group(broker.config, overrides, **_dynamic(broker))
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        _require_name(name, "A subscription of client metrics needs a name")
        overrides = broker.metadata.config_overrides(ConfigResourceType.CLIENT_METRICS, name)
        return describe_client_metrics(overrides)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid resource type {resource_type}")


def _topic(broker: BrokerContext, name: str) -> list[DescribedKey]:
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    metadata = broker.metadata
    if metadata.topic(name) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    return describe_topic(
        broker.config,
        metadata.topic_overrides(name),
        **_dynamic(broker),
    )


def _broker(broker: BrokerContext, name: str) -> list[DescribedKey]:
    metadata = broker.metadata
    if name == "":
        return describe_cluster_default(metadata.cluster_overrides())
    _require_own_id(broker, name)
    return describe_node(broker.config, **_dynamic(broker))


def _dynamic(broker: BrokerContext) -> dict[str, Mapping[str, str]]:
    """Return the dynamic values of all brokers and of this one."""
    metadata = broker.metadata
    return {"cluster": metadata.cluster_overrides(), "broker": metadata.broker_overrides()}


def _require_name(name: str, problem: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _require_own_id(broker: BrokerContext, name: str) -> None:
    if name != str(broker.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker.node_id} describes only itself or, with an empty name, "
            f"the defaults, not {name!r}",
        )
