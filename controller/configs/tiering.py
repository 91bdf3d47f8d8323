"""Validation of changes to tiered topics (KIP-405, KIP-950)."""

from __future__ import annotations

from collections.abc import Mapping

from controller.decision import ControllerView
from protocol.errors import ApiError, ErrorCode
from protocol.topic_name import NEVER_TIERED
from runtime.config import ConfigError, TopicConfig, keys_remote, keys_topic, topic_defaults
from runtime.config.tiering import tiering_problem, turning_off_problem

_ENABLE = keys_topic.REMOTE_STORAGE_ENABLE


def check_tiering(
    view: ControllerView, topic: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Check that a topic's configuration may change from `before` to `after`.

    A rule that `before` already breaks does not block a change of other values.

    Raises:
        ApiError: INVALID_CONFIG.
    """
    if _ENABLE.name not in before and _ENABLE.name not in after:
        return
    defaults = topic_defaults(view.settings.config)
    old, new = defaults.with_overrides(before), defaults.with_overrides(after)
    problem = turning_off_problem(old, new)
    if problem is None:
        problem = _problem(view, topic, new)
        known = _problem(view, topic, old)
        if problem is None or (known is not None and str(known) == str(problem)):
            return
    raise ApiError(ErrorCode.INVALID_CONFIG, str(problem))


def _problem(view: ControllerView, topic: str, config: TopicConfig) -> ConfigError | None:
    if config[_ENABLE] and topic in NEVER_TIERED:
        return ConfigError(_ENABLE.name, "true", f"must be false: {topic} cannot be tiered")
    enabled = view.settings.config[keys_remote.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]
    return tiering_problem(config, system_enabled=enabled)
