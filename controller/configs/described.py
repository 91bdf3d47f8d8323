"""Configurations that a controller returns for DescribeConfigs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.configs.topic_settings import CLUSTER_DEFAULT, stored_configs
from controller.decision import ControllerView
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.topic_name import topic_name_problem
from runtime.config import ConfigValue, effective_topic_config
from runtime.config.described import (
    DescribedKey,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_node,
    describe_topic,
)
from serving.log_levels import current_level


def describe_resource(
    view: ControllerView, resource_type: int, name: str
) -> Iterable[DescribedKey]:
    """Return the keys of a resource, sorted by name.

    The resource is a topic, this node, its loggers, the cluster-wide defaults, a group or a
    subscription of client metrics.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (another
            node's
            id, an empty name, or another resource type).
    """
    if resource_type == ConfigResourceType.TOPIC:
        return _topic(view, name)
    if resource_type == ConfigResourceType.BROKER:
        return _node(view, name)
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        _require_own_id(view, name)
        return describe_loggers(current_level())
    if resource_type not in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"a controller cannot describe resource type {resource_type}",
        )
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "missing resource name")
    stored = stored_configs(view, resource_type, name)
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        return describe_client_metrics(stored)
    cluster, own = _dynamic(view)
    return describe_group(view.settings.config, stored, cluster=cluster, broker=own)


def _topic(view: ControllerView, name: str) -> list[DescribedKey]:
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name not in view.image.topics.by_name:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {name!r}")
    cluster, own = _dynamic(view)
    stored = stored_configs(view, ConfigResourceType.TOPIC, name)
    return describe_topic(view.settings.config, stored, cluster=cluster, broker=own)


def effective_topic(view: ControllerView, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Return every topic key with its value and source, for a topic with `overrides`."""
    cluster, own = _dynamic(view)
    return effective_topic_config(
        view.settings.config, topic=overrides, cluster_dynamic=cluster, broker_dynamic=own
    )


def _node(view: ControllerView, name: str) -> list[DescribedKey]:
    cluster, own = _dynamic(view)
    if name == CLUSTER_DEFAULT:
        return describe_cluster_default(cluster)
    _require_own_id(view, name)
    return describe_node(view.settings.config, cluster=cluster, broker=own)


def _require_own_id(view: ControllerView, name: str) -> None:
    if name != str(view.settings.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"node {view.settings.node_id} describes only itself or, with an empty "
            f"name, the defaults of all brokers, not {name!r}",
        )


def _dynamic(view: ControllerView) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the dynamic values of all brokers, and those of this node."""
    return (
        stored_configs(view, ConfigResourceType.BROKER, CLUSTER_DEFAULT),
        stored_configs(view, ConfigResourceType.BROKER, str(view.settings.node_id)),
    )
