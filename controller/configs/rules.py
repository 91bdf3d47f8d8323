"""Rules for configurations: the keys and values that each kind of resource may have.

The tables of keys are in `runtime.config`. A topic may have topic keys. A broker, or all brokers
(empty name), may have the node keys that can change at run time. Groups and subscriptions of client
metrics have their own keys. A bad value is INVALID_CONFIG for a topic or a group and
INVALID_REQUEST for a broker, as in Kafka (KAFKA-13609).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.configs.topic_settings import CLUSTER_DEFAULT
from controller.decision import ControllerView
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from runtime.config import ConfigError, ConfigKey, Type, UnknownKey, topic_defaults
from runtime.config import validate_topic_config as validate_topic
from runtime.config.client_metrics import interval_problem, validate_client_metrics_config
from runtime.config.dynamic import broker_key, check_broker_values
from runtime.config.groups import validate_group_config
from runtime.config.tables import TOPIC_KEYS

VALUE_BYTES_MAX = 32_767


def check_topic_config(view: ControllerView, overrides: Mapping[str, str]) -> None:
    """Check the overrides of a topic. Raises ApiError: INVALID_CONFIG."""
    _check_sizes(overrides)
    if not overrides:
        return
    try:
        validate_topic(overrides, topic_defaults(view.settings.config))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error


def check_broker_config(name: str, overrides: Mapping[str, str]) -> None:
    """Check values of broker `name` (empty: all brokers). Raises ApiError: INVALID_REQUEST.

    Unknown keys are accepted: as in Kafka, they may belong to a plug-in.
    """
    _check_sizes(overrides)
    try:
        check_broker_values(overrides.items(), for_all=name == CLUSTER_DEFAULT)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def check_group_config(view: ControllerView, overrides: Mapping[str, str]) -> None:
    """Check the values of a group. Raises ApiError: INVALID_CONFIG."""
    _check_sizes(overrides)
    try:
        validate_group_config(overrides, view.settings.config)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error


def check_client_metrics_config(overrides: Mapping[str, str]) -> None:
    """Check the values of a subscription of client metrics.

    Raises:
        ApiError: INVALID_REQUEST for an unknown key or an interval out of range, else
            INVALID_CONFIG.
    """
    _check_sizes(overrides)
    try:
        validate_client_metrics_config(overrides)
        problem = interval_problem(overrides)
    except UnknownKey as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(problem))


def is_list_key(resource_type: int, name: str) -> bool:
    """Return whether APPEND and SUBTRACT apply: to list keys of topics and brokers, as in Kafka."""
    key = _list_key(resource_type, name)
    return key is not None and key.type is Type.LIST


def default_text(resource_type: int, name: str) -> str:
    """Return the default of a list key as text; APPEND extends it if no value is set."""
    key = _list_key(resource_type, name)
    if key is None or key.required:
        return ""
    return key.format(key.default) or ""


def _list_key(resource_type: int, name: str) -> ConfigKey[Any] | None:
    if resource_type == ConfigResourceType.TOPIC:
        return TOPIC_KEYS.get(name)
    return broker_key(name) if resource_type == ConfigResourceType.BROKER else None


def _check_sizes(overrides: Mapping[str, str]) -> None:
    for name, text in overrides.items():
        if len(text.encode()) > VALUE_BYTES_MAX:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"the value of {name} must have at most {VALUE_BYTES_MAX} bytes",
            )
