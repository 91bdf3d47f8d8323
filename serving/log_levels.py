"""Log levels as resources of type BROKER_LOGGER (KIP-412), for both roles.

There is one logger with a level, `root`. Clients see Kafka's level names. A Kafka level without a
counterpart here maps to the nearest one (`LEVELS`). A change lasts until the process ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from protocol.errors import ApiError, ErrorCode
from runtime import log
from runtime.config.described import ROOT_LOGGER

LEVELS: Final[Mapping[str, str]] = {
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERROR": "error",
    "TRACE": "debug",
    "FATAL": "error",
}
_NAMES: Final[Mapping[str, str]] = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARN",
    "error": "ERROR",
}


class LevelOperation(IntEnum):
    """Operations of IncrementalAlterConfigs that apply to log levels."""

    SET = 0
    DELETE = 1


class ConfigChange(NamedTuple):
    """One entry of a request for any resource type; `operation` as on the wire."""

    name: str
    operation: int
    value: str | None


def current_level() -> str:
    """Return Kafka's name of the current log level."""
    return _NAMES[log.level()]


def change_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """Set log levels, all of them or none.

    Raises:
        ApiError: INVALID_CONFIG if the logger or the level does not exist, INVALID_REQUEST if the
            operation is not possible for a level.
    """
    levels = [_checked(change) for change in changes]
    if not validate_only:
        for level in levels:
            log.set_level(level)


def _checked(change: ConfigChange) -> str:
    if change.operation not in tuple(LevelOperation):
        raise ApiError(ErrorCode.INVALID_REQUEST, "only SET is supported for a log level")
    if change.name != ROOT_LOGGER:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"unknown logger {change.name!r}: only {ROOT_LOGGER} has a level",
        )
    if change.operation == LevelOperation.DELETE:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the level of {ROOT_LOGGER} cannot be deleted")
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name}: missing level")
    level = LEVELS.get(change.value.upper())
    if level is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"invalid level {change.value!r}; allowed: {', '.join(LEVELS)}",
        )
    return level
