"""Topic configurations that elections depend on, resolved at the moment of use.

Precedence as in Kafka: the topic's own value, this node's dynamic value, the cluster-wide dynamic
default, the node's static configuration. A value that does not parse counts as not set. It was
checked when it was written, and an election must not fail on an old record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from controller.decision import ControllerView
from metalog.image.local_log import LocalLogThresholds
from metalog.image.values import ConfigResourceType
from protocol.topic_name import TRANSACTION_STATE_TOPIC
from runtime.config import keys_log, keys_replication, keys_topic

T = TypeVar("T")

MIN_ISR = keys_topic.MIN_INSYNC_REPLICAS.name
UNCLEAN_ELECTION = keys_topic.UNCLEAN_LEADER_ELECTION_ENABLE.name
RECOVERY_STRATEGY = keys_topic.UNCLEAN_RECOVERY_STRATEGY.name
"""Topics and nodes use the same key for these three."""
RECOVERY_MANAGER = keys_log.UNCLEAN_RECOVERY_MANAGER_ENABLED.name
RECOVERY_TIMEOUT = keys_log.UNCLEAN_RECOVERY_TIMEOUT_MS.name
LOCAL_LOG_MS = keys_topic.LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_MS.name
LOCAL_LOG_BYTES = keys_topic.LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_BYTES.name
"""Keys of both topics and nodes (KIP-1303)."""
ELECTION_KEYS = frozenset({UNCLEAN_ELECTION, RECOVERY_STRATEGY, RECOVERY_MANAGER})
"""Keys whose change may allow an election that was not allowed before."""

CLUSTER_DEFAULT = ""
"""Resource name of the cluster-wide dynamic configuration of brokers."""


class RecoveryStrategy(Enum):
    """The rule for partitions without a clean candidate for leadership (KIP-966).

    AGGRESSIVE: any live replica leads; with the recovery manager, the one with the longest log.
    BALANCED: the partition waits for the replicas that may have every committed record. NONE: an
    operator decides.
    """

    AGGRESSIVE = "Aggressive"
    BALANCED = "Balanced"
    NONE = "None"

    # `Enum.__hash__` is a Python call, too slow for ten thousand partitions.
    __hash__ = object.__hash__


class ConfigSource(Enum):
    """The source of a value; completes "... of"."""

    TOPIC = "the topic"
    NODE = "this controller, dynamic"
    CLUSTER = "the cluster, dynamic"
    STATIC = "this controller's properties file or the default"


class StrategyInForce(NamedTuple):
    """A strategy, with the key and the source that set it."""

    strategy: RecoveryStrategy
    key: str
    source: ConfigSource


_BY_OWN_FALSE: Final = {TRANSACTION_STATE_TOPIC: RecoveryStrategy.NONE}
"""Topics for which `unclean.leader.election.enable=false` of their own is not Balanced."""
_STRATEGY_BY_TEXT: Mapping[str, RecoveryStrategy] = {s.value: s for s in RecoveryStrategy}


def stored_configs(view: ControllerView, resource_type: int, name: str) -> Mapping[str, str]:
    """Return the dynamic values written for a resource, empty without any."""
    stored = view.image.configs.get((int(resource_type), name))
    return {} if stored is None else stored


def min_isr_of(view: ControllerView, topic_name: str) -> int:
    """Return the effective `min.insync.replicas` of the topic."""
    sources = chain(_topic_values(view, topic_name), _node_values(view))
    return _first(sources, MIN_ISR, _positive, view.settings.min_insync_replicas)


def recovery_strategy(view: ControllerView, topic_name: str) -> RecoveryStrategy:
    """Return the effective strategy of the topic."""
    return strategy_in_force(view, topic_name).strategy


def strategy_in_force(view: ControllerView, topic_name: str) -> StrategyInForce:
    """Return the effective strategy of a topic, with its key and source.

    The topic's own values take precedence over those for all topics. In each source
    `unclean.recovery.strategy` takes precedence over `unclean.leader.election.enable`, the older
    name for Aggressive (true) and Balanced (false). On `__transaction_state` its own false means
    None: a lost record there would commit or abort a transaction twice, so an operator decides.
    """
    settings = view.settings
    own = list(_topic_values(view, topic_name))
    for sources in (own, list(_node_values(view))):
        for key, parse in ((RECOVERY_STRATEGY, _strategy), (UNCLEAN_ELECTION, _by_flag)):
            for source, values in sources:
                strategy = parse(values[key]) if key in values else None
                by_own_flag = sources is own and key == UNCLEAN_ELECTION
                if by_own_flag and strategy is RecoveryStrategy.BALANCED:
                    strategy = _BY_OWN_FALSE.get(topic_name, strategy)
                if strategy is not None:
                    return StrategyInForce(strategy, key, source)
            given = settings.recovery_strategy if key == RECOVERY_STRATEGY else None
            if sources is not own and given is not None:
                return StrategyInForce(RecoveryStrategy(given), key, ConfigSource.STATIC)
    flag = RecoveryStrategy.AGGRESSIVE if settings.unclean_election else RecoveryStrategy.BALANCED
    return StrategyInForce(flag, UNCLEAN_ELECTION, ConfigSource.STATIC)


def recovery_manager_enabled(view: ControllerView) -> bool:
    """Return the effective `unclean.recovery.manager.enabled` of the cluster."""
    return _first(_node_values(view), RECOVERY_MANAGER, _boolean, view.settings.recovery_manager)


def recovery_timeout_ms(view: ControllerView) -> int:
    """Return the effective `unclean.recovery.timeout.ms` of the cluster."""
    return _first(_node_values(view), RECOVERY_TIMEOUT, _natural, view.settings.recovery_timeout_ms)


def local_log_thresholds(view: ControllerView, topic_name: str) -> LocalLogThresholds:
    """Return the topic's effective `leader.election.eligible.local.log.ms` and `.bytes`."""
    config = view.settings.config
    sources = [*_topic_values(view, topic_name), *_node_values(view)]
    return LocalLogThresholds(
        _first(
            sources,
            LOCAL_LOG_MS,
            _whole,
            config[keys_replication.LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_MS],
        ),
        _first(
            sources,
            LOCAL_LOG_BYTES,
            _whole,
            config[keys_replication.LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_BYTES],
        ),
    )


def _first(
    sources: Iterable[tuple[ConfigSource, Mapping[str, str]]],
    key: str,
    parse: Callable[[str], T | None],
    static: T,
) -> T:
    """Return the first value that parses, else `static`."""
    for _, values in sources:
        value = parse(values[key]) if key in values else None
        if value is not None:
            return value
    return static


def _topic_values(
    view: ControllerView, topic_name: str
) -> Iterator[tuple[ConfigSource, Mapping[str, str]]]:
    yield ConfigSource.TOPIC, stored_configs(view, ConfigResourceType.TOPIC, topic_name)


def _node_values(view: ControllerView) -> Iterator[tuple[ConfigSource, Mapping[str, str]]]:
    own = str(view.settings.node_id)
    yield ConfigSource.NODE, stored_configs(view, ConfigResourceType.BROKER, own)
    yield ConfigSource.CLUSTER, stored_configs(view, ConfigResourceType.BROKER, CLUSTER_DEFAULT)


def _strategy(text: str) -> RecoveryStrategy | None:
    return _STRATEGY_BY_TEXT.get(text.strip())


def _by_flag(text: str) -> RecoveryStrategy | None:
    flag = _boolean(text)
    if flag is None:
        return None
    return RecoveryStrategy.AGGRESSIVE if flag else RecoveryStrategy.BALANCED


def _natural(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isdecimal() else None


def _whole(text: str) -> int | None:
    return -1 if text.strip() == "-1" else _natural(text)


def _positive(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isdecimal() and int(stripped) > 0 else None


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())
