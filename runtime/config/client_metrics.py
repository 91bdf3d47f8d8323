"""Configurations of client-metrics subscriptions (KIP-714)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from runtime.config import keys_client_metrics
from runtime.config.errors import ConfigError, UnknownKey
from runtime.config.tables import CLIENT_METRICS_KEYS

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000

MATCH_PARAMETERS = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def validate_client_metrics_config(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError unless a client-metrics subscription may have these values (KIP-714).

    Raises UnknownKey for a name that subscriptions do not have.
    """
    for name, text in overrides.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise UnknownKey(name, text, "client metrics")
        value = key.parse(text)
        if key is keys_client_metrics.MATCH:
            _check_match(value)


def interval_problem(overrides: Mapping[str, str]) -> ConfigError | None:
    """Return the error of the push interval, None if it is valid."""
    name = keys_client_metrics.INTERVAL_MS.name
    text = overrides.get(name)
    if text is None or INTERVAL_MS_MIN <= int(text) <= INTERVAL_MS_MAX:
        return None
    return ConfigError(name, text, f"must be from {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}")


def _check_match(entries: list[str]) -> None:
    """Check that each entry is `parameter=pattern`, with a regular expression as the pattern."""
    for entry in entries:
        parameter, equals, pattern = (part.strip() for part in entry.partition("="))
        if not equals or parameter not in MATCH_PARAMETERS:
            raise ConfigError(
                keys_client_metrics.MATCH.name,
                entry,
                f"must be PARAMETER=PATTERN of {', '.join(sorted(MATCH_PARAMETERS))}",
            )
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(
                keys_client_metrics.MATCH.name, entry, f"must have a regular expression: {error}"
            ) from error
