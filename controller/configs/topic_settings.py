"""Topic configurations that elections depend on, resolved at the moment of use.

Precedence as in Kafka: the topic's own value, this node's dynamic value, the cluster-wide dynamic
default, the node's static configuration. A value that does not parse counts as not set: it was
checked when it was written, and an election must not fail on an old record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from controller.decision import ControllerView
from metalog.image.values import ConfigResourceType
from runtime.config import keys_topic

T = TypeVar("T")

MIN_ISR = keys_topic.MIN_INSYNC_REPLICAS.name
UNCLEAN_ELECTION = keys_topic.UNCLEAN_LEADER_ELECTION_ENABLE.name
"""Topics and nodes have both under one name."""

CLUSTER_DEFAULT = ""
"""Resource name of the cluster-wide dynamic configuration of brokers."""


class RecoveryStrategy(Enum):
    """What happens where no clean candidate for leadership is left (KIP-966).

    AGGRESSIVE: somebody who is alive leads. BALANCED: as long as the replicas that may have
    everything can come back, they are waited for. NONE: an operator decides.
    """

    AGGRESSIVE = "Aggressive"
    BALANCED = "Balanced"
    NONE = "None"


def stored_configs(view: ControllerView, resource_type: int, name: str) -> Mapping[str, str]:
    """The dynamic values written for a resource, empty if there are none."""
    stored = view.image.configs.get((int(resource_type), name))
    return {} if stored is None else stored


def min_isr_of(view: ControllerView, topic_name: str) -> int:
    """`min.insync.replicas` in force for the topic."""
    return _resolve(view, topic_name, MIN_ISR, _positive, view.settings.min_insync_replicas)


def unclean_election_enabled(view: ControllerView, topic_name: str) -> bool:
    """`unclean.leader.election.enable` in force for the topic."""
    return _resolve(view, topic_name, UNCLEAN_ELECTION, _boolean, view.settings.unclean_election)


def recovery_strategy(view: ControllerView, topic_name: str) -> RecoveryStrategy:
    """The strategy in force for the topic: `unclean.leader.election.enable` says it."""
    if unclean_election_enabled(view, topic_name):
        return RecoveryStrategy.AGGRESSIVE
    return RecoveryStrategy.BALANCED


def _resolve(
    view: ControllerView, topic_name: str, key: str, parse: Callable[[str], T | None], static: T
) -> T:
    for text in _dynamic_values(view, topic_name, key):
        value = parse(text)
        if value is not None:
            return value
    return static


def _dynamic_values(view: ControllerView, topic_name: str, key: str) -> Iterator[str]:
    for resource_type, name in (
        (ConfigResourceType.TOPIC, topic_name),
        (ConfigResourceType.BROKER, str(view.settings.node_id)),
        (ConfigResourceType.BROKER, CLUSTER_DEFAULT),
    ):
        values = stored_configs(view, resource_type, name)
        if key in values:
            yield values[key]


def _positive(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isdecimal() and int(stripped) > 0 else None


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())
