"""DescribeConfigs (key 32), versions 1-4.

Behaviour: the configuration in effect for topics, brokers (the one asked, by its id, or with an
empty name the cluster-wide dynamic defaults), broker loggers, groups and client metrics. Null for
the keys means all. Sensitive values are null. Synonyms (version 1) list every place that holds a
value, in the order in which they are asked; types and documentation come from version 3 on.

Errors per resource: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST for
another broker's id and for kinds of resource that do not exist, GROUP_ID_NOT_FOUND is never said:
a group that nobody configured has the defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.context import BrokerContext
from metalog.image.values import ConfigResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.topic_name import topic_name_problem
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from runtime.config import (
    ConfigKey,
    ConfigValue,
    Dynamic,
    Source,
    Synonym,
    Type,
    effective_node_config,
    effective_topic_config,
)
from runtime.config.tables import CLIENT_METRICS_KEYS, GROUP_KEYS

MIN_VERSION: Final = 1
MAX_VERSION: Final = 4

UNKNOWN_TYPE: Final = 0
ROOT_LOGGER: Final = "root"

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = DescribeConfigsResponse.DescribeConfigsResourceResult


class Shown(NamedTuple):
    """One key as it is shown. `read_only` depends on the kind of resource."""

    value: ConfigValue
    read_only: bool


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(_context: RequestContext, request: DescribeConfigsRequest) -> Reply:
        return DescribeConfigsResponse(
            results=[_resource(broker, request, resource) for resource in request.resources]
        )

    table.register(
        ApiKey.DESCRIBE_CONFIGS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _resource(
    broker: BrokerContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = _Result(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_message=None,
    )
    try:
        shown = _shown(broker, resource.resource_type, resource.resource_name)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.text
        return result
    wanted = resource.configuration_keys
    names = None if wanted is None else frozenset(wanted)
    result.configs = [
        _entry(request, each) for each in shown if names is None or each.value.key.name in names
    ]
    return result


def _shown(broker: BrokerContext, resource_type: int, name: str) -> Iterable[Shown]:
    if resource_type == ConfigResourceType.TOPIC:
        return _topic(broker, name)
    if resource_type == ConfigResourceType.BROKER:
        return _broker(broker, name)
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        return _loggers(broker, name)
    if resource_type == ConfigResourceType.GROUP:
        return _group(broker, name)
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        return _client_metrics(broker, name)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown kind of resource {resource_type}")


def _topic(broker: BrokerContext, name: str) -> list[Shown]:
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    metadata = broker.metadata
    if metadata.topic(name) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    values = effective_topic_config(
        broker.config,
        topic=metadata.topic_overrides(name),
        cluster_dynamic=metadata.cluster_overrides(),
        broker_dynamic=metadata.broker_overrides(),
    )
    return [Shown(value, False) for value in values.values()]


def _broker(broker: BrokerContext, name: str) -> list[Shown]:
    metadata = broker.metadata
    if name == "":
        overrides = metadata.cluster_overrides()
        values = effective_node_config(broker.config, cluster_dynamic=overrides)
        return [_dynamic_default(values[key]) for key in sorted(overrides) if key in values]
    _require_own_id(broker, name)
    values = effective_node_config(
        broker.config,
        cluster_dynamic=metadata.cluster_overrides(),
        broker_dynamic=metadata.broker_overrides(),
    )
    return [Shown(value, value.key.dynamic is Dynamic.READ_ONLY) for value in values.values()]


def _dynamic_default(value: ConfigValue) -> Shown:
    only = tuple(
        synonym for synonym in value.synonyms if synonym.source is Source.DYNAMIC_DEFAULT_BROKER
    )
    return Shown(value._replace(synonyms=only, source=Source.DYNAMIC_DEFAULT_BROKER), False)


def _loggers(broker: BrokerContext, name: str) -> list[Shown]:
    _require_own_id(broker, name)
    level = str(broker.config["kraftbox.log.level"]).upper()
    key = ConfigKey(ROOT_LOGGER, Type.STRING, level)
    synonym = Synonym(ROOT_LOGGER, level, Source.DYNAMIC_BROKER_LOGGER)
    return [Shown(ConfigValue(key, level, Source.DYNAMIC_BROKER_LOGGER, (synonym,)), True)]


def _require_own_id(broker: BrokerContext, name: str) -> None:
    if name != str(broker.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker.node_id} describes itself or the default (empty name), not {name!r}",
        )


def _group(broker: BrokerContext, name: str) -> list[Shown]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A group's configuration needs a group id")
    overrides = broker.metadata.config_overrides(ConfigResourceType.GROUP, name)
    return [
        _entity(key, overrides.get(key.name), Source.GROUP, _group_default(broker, key))
        for _, key in sorted(GROUP_KEYS.items())
    ]


def _group_default(broker: BrokerContext, key: ConfigKey) -> str | None:
    if key.synonyms:
        return broker.settings.effective_node.text(key.synonyms[0][0])
    return key.format(key.default)


def _client_metrics(broker: BrokerContext, name: str) -> list[Shown]:
    overrides = broker.metadata.config_overrides(ConfigResourceType.CLIENT_METRICS, name)
    return [
        _entity(key, overrides.get(key.name), Source.CLIENT_METRICS, key.format(key.default))
        for _, key in sorted(CLIENT_METRICS_KEYS.items())
    ]


def _entity(key: ConfigKey, value: str | None, source: Source, default: str | None) -> Shown:
    synonyms = [] if value is None else [Synonym(key.name, value, source)]
    if default is not None:
        synonyms.append(Synonym(key.name, default, Source.DEFAULT))
    if value is None:
        return Shown(ConfigValue(key, default, Source.DEFAULT, tuple(synonyms)), False)
    return Shown(ConfigValue(key, value, source, tuple(synonyms)), False)


def _entry(
    request: DescribeConfigsRequest, shown: Shown
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    value = shown.value
    key = value.key
    entry = _Entry(
        name=key.name,
        value=value.value,
        read_only=shown.read_only,
        config_source=value.source,
        is_sensitive=key.sensitive,
        config_type=key.type,
        documentation=key.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        entry.synonyms = [
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name,
                value=None if key.sensitive else synonym.value,
                source=synonym.source,
            )
            for synonym in value.synonyms
        ]
    return entry
