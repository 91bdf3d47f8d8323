"""Validation of configuration changes by the broker, before the controller decides them.

A broker decides the levels of its own loggers alone. Values of brokers are validated here as well:
only the broker has its static configuration, which they must fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.context import BrokerContext
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from runtime.config import ConfigError, DynamicLayers
from runtime.config.dynamic import check_broker_values
from serving.log_levels import ConfigChange, LevelOperation, change_levels


class Resource(NamedTuple):
    """The requested changes of one resource."""

    type: int
    name: str
    changes: tuple[ConfigChange, ...]


def check_broker_changes(
    broker: BrokerContext, name: str, changes: Sequence[ConfigChange], *, replace: bool
) -> None:
    """Raise INVALID_REQUEST unless the changes suit this broker, or all brokers for an empty
    `name`.

    `replace`: the changes are all values that remain afterwards, not changes of single keys.
    """
    if name:
        require_own_id(broker, name)
    fresh = {
        change.name: change.value
        for change in changes
        if change.operation == LevelOperation.SET and change.value is not None
    }
    removed = {c.name for c in changes if c.operation == LevelOperation.DELETE}
    cluster, own = broker.metadata.cluster_overrides(), broker.metadata.broker_overrides()
    stored = own if name else cluster
    kept = {} if replace else {key: text for key, text in stored.items() if key not in removed}
    target = {**kept, **fresh}
    try:
        check_broker_values(fresh.items(), for_all=not name)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    layers = (
        DynamicLayers(broker.config, cluster, target)
        if name
        else DynamicLayers(broker.config, target, own)
    )
    for refused in layers.refused:
        if refused.key in fresh:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(refused))


def require_own_id(broker: BrokerContext, name: str) -> None:
    """Raise INVALID_REQUEST for a resource of another broker."""
    if name != str(broker.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {broker.node_id}; it cannot change the configuration of {name!r}",
        )


def decide_own(
    broker: BrokerContext, resource: Resource, *, replace: bool, validate_only: bool
) -> bool:
    """Decide the changes of this broker's loggers. Returns: False if the controller must decide
    `resource`.

    Raises ApiError if the changes are invalid, in either case.
    """
    if resource.type == ConfigResourceType.BROKER:
        check_broker_changes(broker, resource.name, resource.changes, replace=replace)
    if resource.type != ConfigResourceType.BROKER_LOGGER or replace:
        return False
    require_own_id(broker, resource.name)
    change_levels(resource.changes, validate_only=validate_only)
    return True
