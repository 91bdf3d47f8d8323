"""What DescribeConfigs shows on a controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from controller.config_rules import effective_topic
from controller.decision import ControllerView
from controller.topic_settings import CLUSTER_DEFAULT, stored_configs
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.topic_name import topic_name_problem
from runtime.config import ConfigValue, Dynamic, Source, effective_node_config


class DescribedKey(NamedTuple):
    """One key with its value; `read_only` for what cannot change at run time."""

    value: ConfigValue
    read_only: bool


def describe_resource(
    view: ControllerView, resource_type: int, name: str
) -> Iterable[DescribedKey]:
    """The keys of a topic, of this node or of the cluster-wide defaults, sorted by name.

    Raises INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
    """
    if resource_type == ConfigResourceType.TOPIC:
        return _topic(view, name)
    if resource_type == ConfigResourceType.BROKER:
        return _node(view, name)
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"a controller does not describe resources of type {resource_type}",
    )


def _topic(view: ControllerView, name: str) -> list[DescribedKey]:
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name not in view.image.topics.by_name:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    values = effective_topic(view, stored_configs(view, ConfigResourceType.TOPIC, name))
    return [DescribedKey(value, read_only=False) for value in values.values()]


def _node(view: ControllerView, name: str) -> list[DescribedKey]:
    settings = view.settings
    if name not in (CLUSTER_DEFAULT, str(settings.node_id)):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"this is node {settings.node_id}; it describes itself or, under an empty name, the "
            f"defaults of all brokers, not {name!r}",
        )
    shared = stored_configs(view, ConfigResourceType.BROKER, CLUSTER_DEFAULT)
    if name == CLUSTER_DEFAULT:
        values = effective_node_config(settings.config, cluster_dynamic=shared)
        return [_shared_default(values[key]) for key in sorted(shared) if key in values]
    own = stored_configs(view, ConfigResourceType.BROKER, name)
    values = effective_node_config(settings.config, cluster_dynamic=shared, broker_dynamic=own)
    return [
        DescribedKey(value, read_only=value.key.dynamic is Dynamic.READ_ONLY)
        for value in values.values()
    ]


def _shared_default(value: ConfigValue) -> DescribedKey:
    source = Source.DYNAMIC_DEFAULT_BROKER
    synonyms = tuple(synonym for synonym in value.synonyms if synonym.source is source)
    return DescribedKey(value._replace(source=source, synonyms=synonyms), read_only=False)
