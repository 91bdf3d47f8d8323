"""Changes of dynamic configurations of topics, brokers, groups and client metrics.

AlterConfigs and IncrementalAlterConfigs are checked alike: the resulting values of a resource are
validated together, and only the differences are written. A record without a value removes the key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from controller.configs.min_isr import check_one_min_isr
from controller.configs.rules import (
    check_broker_config,
    check_client_metrics_config,
    check_group_config,
    check_topic_config,
    default_text,
    is_list_key,
)
from controller.configs.tiering import check_tiering
from controller.configs.topic_settings import CLUSTER_DEFAULT, stored_configs
from controller.decision import ControllerView, Decision, check_record_count
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.config_record import ConfigRecord
from protocol.schema import MetadataRecord
from protocol.topic_name import topic_name_problem


class ConfigOperation(IntEnum):
    """Operations of IncrementalAlterConfigs on a value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    type: int
    name: str


class ConfigChange(NamedTuple):
    """One entry of a request; `operation` as on the wire."""

    name: str
    operation: int
    value: str | None


class ResourceChange(NamedTuple):
    resource: ConfigResource
    changes: tuple[ConfigChange, ...]


class ConfigOutcome(NamedTuple):
    resource: ConfigResource
    error: ApiError | None


_Targets = Callable[[ControllerView, ResourceChange], dict[str, str]]


def decide_incremental_alter_configs(
    view: ControllerView, changes: Sequence[ResourceChange], *, validate_only: bool
) -> Decision[tuple[ConfigOutcome, ...]]:
    """Change single keys of resources; each resource succeeds or fails independently.

    Raises:
        ApiError: POLICY_VIOLATION, the request is too large for one operation.
    """
    return _decide(view, changes, _incremental_target, validate_only=validate_only)


def decide_alter_configs(
    view: ControllerView, changes: Sequence[ResourceChange], *, validate_only: bool
) -> Decision[tuple[ConfigOutcome, ...]]:
    """Replace all values of resources; keys that a change does not name are removed.

    Raises:
        ApiError: POLICY_VIOLATION, the request is too large for one operation.
    """
    return _decide(view, changes, _full_target, validate_only=validate_only)


def _decide(
    view: ControllerView,
    changes: Sequence[ResourceChange],
    target_of: _Targets,
    *,
    validate_only: bool,
) -> Decision[tuple[ConfigOutcome, ...]]:
    counts = Counter(change.resource for change in changes)
    records: list[MetadataRecord] = []
    outcomes: dict[ConfigResource, ConfigOutcome] = {}
    for change in changes:
        resource = change.resource
        if resource in outcomes:
            continue
        try:
            if counts[resource] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "duplicate resource in the request")
            _check_resource(view, resource)
            _check_keys(change)
            target = target_of(view, change)
            _check_target(view, resource, target)
        except ApiError as error:
            outcomes[resource] = ConfigOutcome(resource, error.as_value())
            continue
        records += _differences(resource, _current(view, resource), target)
        outcomes[resource] = ConfigOutcome(resource, None)
    check_record_count(len(records))
    reply = tuple(outcomes.values())
    return Decision(() if validate_only else tuple(records), reply)


# --- resources --------------------------------------------------------------------------------


def _check_resource(view: ControllerView, resource: ConfigResource) -> None:
    if resource.type == ConfigResourceType.TOPIC:
        _check_topic(view, resource.name)
    elif resource.type == ConfigResourceType.BROKER:
        _check_broker(view, resource.name)
    elif resource.type in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
        if not resource.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "missing resource name")
    else:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"configurations of resource type {resource.type} cannot be changed here",
        )


def _check_topic(view: ControllerView, name: str) -> None:
    if not name:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "default configurations of topics are not supported"
        )
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name not in view.image.topics.by_name:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {name!r}")


def _check_broker(view: ControllerView, name: str) -> None:
    if name == CLUSTER_DEFAULT:
        return
    if not (name.isascii() and name.isdecimal()):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"invalid broker id {name!r}")
    cluster = view.image.cluster
    if int(name) not in cluster.brokers and int(name) not in cluster.controllers:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {name} is not registered")


def _check_keys(change: ResourceChange) -> None:
    names = Counter(c.name for c in change.changes)
    repeated = sorted(name for name, count in names.items() if count > 1)
    if repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate key {repeated[0]}")
    for name in names:
        if not name:
            of_metrics = change.resource.type == ConfigResourceType.CLIENT_METRICS
            code = ErrorCode.INVALID_REQUEST if of_metrics else ErrorCode.INVALID_CONFIG
            raise ApiError(code, "missing configuration name")


def _current(view: ControllerView, resource: ConfigResource) -> Mapping[str, str]:
    return stored_configs(view, resource.type, resource.name)


def _check_target(
    view: ControllerView, resource: ConfigResource, target: Mapping[str, str]
) -> None:
    """Check the values that change; unchanged ones stay allowed, as they were valid when
    written."""
    current = _current(view, resource)
    if resource.type == ConfigResourceType.BROKER and view.elr_enabled:
        check_one_min_isr(resource.name, current, target)
    fresh = {name: text for name, text in target.items() if current.get(name) != text}
    if fresh:
        _check_fresh(view, resource, target, fresh)
    if resource.type == ConfigResourceType.TOPIC:
        check_tiering(view, resource.name, current, target)


def _check_fresh(
    view: ControllerView,
    resource: ConfigResource,
    target: Mapping[str, str],
    fresh: Mapping[str, str],
) -> None:
    if resource.type == ConfigResourceType.BROKER:
        check_broker_config(resource.name, fresh)
        return
    check = partial(_CHECKS[resource.type], view)
    check({n: t for n, t in target.items() if n in fresh or _passes(check, {n: t})})


_Check = Callable[[ControllerView, Mapping[str, str]], None]
_CHECKS: Mapping[int, _Check] = {
    ConfigResourceType.TOPIC: check_topic_config,
    ConfigResourceType.GROUP: check_group_config,
    ConfigResourceType.CLIENT_METRICS: lambda _, overrides: check_client_metrics_config(overrides),
}


def _passes(check: Callable[[Mapping[str, str]], None], overrides: Mapping[str, str]) -> bool:
    try:
        check(overrides)
    except ApiError:
        return False
    return True


def _differences(
    resource: ConfigResource, current: Mapping[str, str], target: Mapping[str, str]
) -> list[ConfigRecord]:
    names = sorted({*current, *target})
    return [
        ConfigRecord(
            resource_type=resource.type,
            resource_name=resource.name,
            name=name,
            value=target.get(name),
        )
        for name in names
        if current.get(name) != target.get(name)
    ]


# --- targets ----------------------------------------------------------------------------------


def _full_target(view: ControllerView, change: ResourceChange) -> dict[str, str]:
    return {c.name: _given(c) for c in change.changes}


def _incremental_target(view: ControllerView, change: ResourceChange) -> dict[str, str]:
    target = dict(_current(view, change.resource))
    for c in change.changes:
        if c.operation == ConfigOperation.SET:
            target[c.name] = _given(c)
        elif c.operation == ConfigOperation.DELETE:
            target.pop(c.name, None)
        elif c.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            target[c.name] = _edited_list(change.resource, c, target.get(c.name))
        else:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"invalid configuration operation {c.operation}"
            )
    return target


def _given(change: ConfigChange) -> str:
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name}: missing value")
    return change.value


def _edited_list(resource: ConfigResource, change: ConfigChange, current: str | None) -> str:
    operation = ConfigOperation(change.operation)
    if not is_list_key(resource.type, change.name):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{operation.name} is for lists, but {change.name} is not a list",
        )
    text = default_text(resource.type, change.name) if current is None else current
    parts = _parts(text)
    edits = _parts(_given(change))
    if operation is ConfigOperation.APPEND:
        parts += [part for part in dict.fromkeys(edits) if part not in parts]
    else:
        parts = [part for part in parts if part not in edits]
    return ",".join(parts)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
