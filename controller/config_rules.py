"""Which configurations may be set where, and what is in effect.

The tables of keys are `runtime.config`; here is what they mean for a resource of the cluster: a
topic has topic keys; a broker, or all brokers by the empty name, has those node keys that can
change while it runs. A bad topic configuration is INVALID_CONFIG; a broker key that cannot change
at run time is INVALID_REQUEST, as Kafka answers (KAFKA-13609).
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.decision import ControllerView
from controller.topic_settings import CLUSTER_DEFAULT, stored_configs
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from runtime.config import (
    ConfigError,
    ConfigKey,
    ConfigValue,
    Dynamic,
    Type,
    effective_topic_config,
    topic_defaults,
    validate_topic_config,
)
from runtime.config.tables import BROKER_DYNAMIC_KEYS, NODE_KEYS, TOPIC_KEYS

VALUE_BYTES_MAX = 32_767

_LISTENER_PREFIX = "listener.name."


def check_topic_config(view: ControllerView, overrides: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG unless a topic may have these overrides."""
    _check_sizes(overrides)
    if not overrides:
        return
    try:
        validate_topic_config(overrides, topic_defaults(view.settings.config))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error


def check_broker_config(name: str, overrides: Mapping[str, str]) -> None:
    """Raise unless broker `name` (empty: all brokers) may have these dynamic values.

    INVALID_CONFIG for an unknown key, INVALID_REQUEST for a value that does not parse or a key
    that cannot change at this level.
    """
    _check_sizes(overrides)
    for key_name, text in overrides.items():
        key = broker_key(key_name)
        if key is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{key_name}={text}: there is no broker configuration of this name",
            )
        problem = _level_problem(key, name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key_name}={text}: {problem}")
        try:
            key.parse(text)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def broker_key(name: str) -> ConfigKey | None:
    """The key of that name, or of the listener-specific form `listener.name.<listener>.<key>`."""
    key = NODE_KEYS.get(name) or BROKER_DYNAMIC_KEYS.get(name)
    if key is None and name.startswith(_LISTENER_PREFIX):
        _, _, inner = name.removeprefix(_LISTENER_PREFIX).partition(".")
        key = NODE_KEYS.get(inner)
    return key


def _level_problem(key: ConfigKey, resource_name: str) -> str | None:
    if key.name in BROKER_DYNAMIC_KEYS:
        return None
    if key.dynamic is Dynamic.READ_ONLY:
        return "cannot change while a broker runs"
    if key.dynamic is Dynamic.PER_BROKER and resource_name == CLUSTER_DEFAULT:
        return "can be set for one broker only, not for all"
    return None


def is_list_key(resource_type: int, name: str) -> bool:
    """Whether APPEND and SUBTRACT make sense for the key."""
    key = TOPIC_KEYS.get(name) if resource_type == ConfigResourceType.TOPIC else broker_key(name)
    return key is not None and key.type is Type.LIST


def default_text(resource_type: int, name: str) -> str:
    """The default of a list key as text: what APPEND adds to when nothing is set."""
    key = TOPIC_KEYS.get(name) if resource_type == ConfigResourceType.TOPIC else broker_key(name)
    if key is None or key.required:
        return ""
    return key.format(key.default) or ""


def effective_topic(view: ControllerView, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Every topic key with its value and source, as this controller sees it."""
    cluster = stored_configs(view, ConfigResourceType.BROKER, CLUSTER_DEFAULT)
    own = stored_configs(view, ConfigResourceType.BROKER, str(view.settings.node_id))
    config = view.settings.config
    try:
        return effective_topic_config(
            config, topic=overrides, cluster_dynamic=cluster, broker_dynamic=own
        )
    except ConfigError:
        # Dynamic values that a newer version wrote and this one does not understand.
        return effective_topic_config(config, topic=overrides)


def _check_sizes(overrides: Mapping[str, str]) -> None:
    for name, text in overrides.items():
        if len(text.encode()) > VALUE_BYTES_MAX:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"the value of {name} is longer than {VALUE_BYTES_MAX} bytes",
            )
