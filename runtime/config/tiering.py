"""Rules of tiered storage (KIP-405, KIP-950) for the configuration of topics and nodes.

The rules and their order are those of Kafka 4.4. They apply to the values in effect, whatever their
source: a topic may break a rule because of a node's default.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from runtime.config import keys_topic
from runtime.config.errors import ConfigError
from runtime.config.schema import TopicKey

T = TypeVar("T")

FOLLOW_TOTAL: Final = -2
"""`local.retention.*`: use the value of `retention.*`."""
UNLIMITED: Final = -1

RETENTION_PAIRS: Final = (
    (keys_topic.LOCAL_RETENTION_BYTES, keys_topic.RETENTION_BYTES),
    (keys_topic.LOCAL_RETENTION_MS, keys_topic.RETENTION_MS),
)


LAG_PAIRS: Final = (
    (keys_topic.REMOTE_COPY_LAG_BYTES, *RETENTION_PAIRS[0]),
    (keys_topic.REMOTE_COPY_LAG_MS, *RETENTION_PAIRS[1]),
)
"""A copy lag, with the local and the total retention that limit it (KIP-1241)."""


class TopicValues(Protocol):
    """Values in effect by key, as in `TopicConfig`."""

    def __getitem__(self, key: TopicKey[T]) -> T: ...


def tiering_problem(config: TopicValues, *, system_enabled: bool) -> ConfigError | None:
    """Return why a topic with these values cannot be tiered; None if it can, or is not to be
    tiered.

    Args:
        system_enabled: `remote.log.storage.system.enable` of the checking node.
    """
    enable = keys_topic.REMOTE_STORAGE_ENABLE
    if not config[enable]:
        return None
    if not system_enabled:
        return ConfigError(
            enable.name,
            "true",
            "must be false while the nodes have remote.log.storage.system.enable=false: tiered "
            "storage is off",
        )
    if "compact" in config[keys_topic.CLEANUP_POLICY]:
        return ConfigError(
            keys_topic.CLEANUP_POLICY.name,
            ",".join(config[keys_topic.CLEANUP_POLICY]),
            f"must be delete or empty with {enable.name}=true: compacted topics are not tiered",
        )
    return _above_total(config) or _lags_too_far(config) or _differs_without_copies(config)


def turning_off_problem(before: TopicValues, after: TopicValues) -> ConfigError | None:
    """Return why tiering of a topic cannot be turned off; None if it can.

    Its remote segments would stay indefinitely, without any reference to them (KIP-950).
    """
    enable, delete = keys_topic.REMOTE_STORAGE_ENABLE, keys_topic.REMOTE_LOG_DELETE_ON_DISABLE
    if not before[enable] or after[enable] or after[delete]:
        return None
    return ConfigError(
        enable.name,
        "false",
        f"needs {delete.name}=true, which deletes the topic's data in the tier; to "
        "keep it and copy no more, leave it true and set "
        f"{keys_topic.REMOTE_LOG_COPY_DISABLE.name}=true",
    )


def local_retention_problem(
    local_key: str, local: int, total_key: str, total: int
) -> ConfigError | None:
    """Return an error if a local limit is above the total limit, or unlimited while the total is
    not.
    """
    if total <= UNLIMITED or local == FOLLOW_TOTAL or 0 <= local <= total:
        return None
    return ConfigError(local_key, local, f"must not be above {total_key}={total}")


def copy_lag_problem(
    lag_key: str, lag: int, local_key: str, local: int, total: int
) -> ConfigError | None:
    """Return an error if a copy lag is above the local retention in effect.

    Local retention deletes only what is copied: such a lag would keep the disk from ever reaching
    its limit.
    """
    effective = total if local == FOLLOW_TOTAL else local
    if lag <= 0 or effective < 0 or lag <= effective:
        return None
    return ConfigError(lag_key, lag, f"must not be above the {local_key} in effect, {effective}")


def _lags_too_far(config: TopicValues) -> ConfigError | None:
    for lag, local, total in LAG_PAIRS:
        problem = copy_lag_problem(lag.name, config[lag], local.name, config[local], config[total])
        if problem is not None:
            return problem
    return None


def _above_total(config: TopicValues) -> ConfigError | None:
    for local, total in RETENTION_PAIRS:
        problem = local_retention_problem(local.name, config[local], total.name, config[total])
        if problem is not None:
            return problem
    return None


def _differs_without_copies(config: TopicValues) -> ConfigError | None:
    """Return an error if a local limit differs from the total limit although copying is disabled.

    Without copies, a deleted local segment is lost, with or without tiered storage.
    """
    disable = keys_topic.REMOTE_LOG_COPY_DISABLE
    if not config[disable]:
        return None
    for local, total in RETENTION_PAIRS:
        if config[local] not in (FOLLOW_TOTAL, config[total]):
            return ConfigError(
                local.name,
                config[local],
                f"must be {FOLLOW_TOTAL} or equal {total.name}={config[total]} with "
                f"{disable.name}=true: segments removed from the disk are not copied "
                "any more",
            )
    return None
