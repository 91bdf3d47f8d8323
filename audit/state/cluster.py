"""The state of the cluster, as the audit replays it from metadata records.

Deliberately, this is not the product's replay table. A check with the code that wrote a log would
share its bugs. So each record's effect is implemented a second time, in another form, and the check
`snapshot-equality` compares the two at every snapshot in the log.

A partition's epochs change with nearly every record, the rest of it (its `Shape`) has few values.
Therefore shapes are shared objects. The effect of a change on a shape, with everything that follows
from it alone, is computed once (`audit.replay.transitions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from audit.state.shapes import Shape, ShapeKey, Shapes
from metalog.image.features import highest_level
from metalog.image.local_log import NO_LOCAL_LOGS

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
MIN_ISR = "min.insync.replicas"
ELR_FEATURE = "eligible.leader.replicas.version"
UNCLEAN = "unclean.leader.election.enable"


class TopicState:
    """A topic; `min_isr` is the configured value in effect for it."""

    __slots__ = ("id", "min_isr", "name", "partitions")

    def __init__(self, topic_id: bytes, name: str, min_isr: int) -> None:
        self.id = topic_id
        self.name = name
        self.min_isr = min_isr
        self.partitions: dict[int, PartitionState] = {}


class PartitionState:
    """The current state of one partition.

    `offset` is that of the last record about it, -1 if only a snapshot contains it. `certain` is
    false after a gap in the log: changes may be missing. `local_logs` are the last reported local
    logs of its replicas (KIP-1303): no check depends on them, so they are not part of the shape.
    Each `*_since_ms` is the time since when it has no leader or is below min ISR, else None.
    """

    __slots__ = (
        "certain",
        "index",
        "leader_epoch",
        "leaderless_since_ms",
        "local_logs",
        "offset",
        "partition_epoch",
        "shape",
        "topic",
        "under_since_ms",
    )

    def __init__(
        self, topic: TopicState, index: int, shape: Shape, leader_epoch: int, partition_epoch: int
    ) -> None:
        self.topic = topic
        self.index = index
        self.shape = shape
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.offset = -1
        self.certain = True
        self.local_logs = NO_LOCAL_LOGS
        self.under_since_ms: int | None = None
        self.leaderless_since_ms: int | None = None


class BrokerState(NamedTuple):
    """A broker's registration. `epoch` is the offset of its registration record."""

    id: int
    epoch: int
    incarnation: str
    rack: str | None
    fenced: bool
    shutting_down: bool
    directories: tuple[str, ...]
    cordoned: tuple[str, ...]
    listeners: tuple[str, ...]


class ClusterState:
    """The whole cluster. Only `audit.replay.replay` changes it."""

    def __init__(self, default_min_isr: int = 1) -> None:
        self.default_min_isr = default_min_isr
        self.shapes = Shapes()
        self.topics: dict[bytes, TopicState] = {}
        self.names: dict[str, TopicState] = {}
        self.partitions: dict[bytes, PartitionState] = {}
        self.brokers: dict[int, BrokerState] = {}
        self.features: dict[str, int] = {}
        self.unknown_levels: dict[str, int] = {}
        """Levels that later releases defined, by feature: the audit cannot judge their records."""
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.entities: dict[tuple[str, ...], Any] = {}

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELR_FEATURE, 0) > 0

    def set_feature(self, name: str, level: int) -> None:
        """Set a feature's level; 0 turns it off. A level that this release does not know is noted
        for the rest of the replay."""
        if level:
            self.features[name] = level
        else:
            self.features.pop(name, None)
        if level > highest_level(name):
            self.unknown_levels[name] = max(level, self.unknown_levels.get(name, 0))

    def min_isr_of(self, topic: str) -> int:
        """Return `min.insync.replicas` of a topic: its own, the cluster's, or the default."""
        for key in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
            value = self.configs.get(key, {}).get(MIN_ISR, "")
            if value.isdigit():
                return int(value)
        return self.default_min_isr

    def setting(self, topic: str, name: str) -> str | None:
        """Return a setting of the topic or the cluster in the metadata log, None without one."""
        for key in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
            value = self.configs.get(key, {}).get(name)
            if value is not None:
                return value
        return None

    def fenced_ids(self) -> set[int]:
        return {broker.id for broker in self.brokers.values() if broker.fenced}

    def went_in_order(self, shape: ShapeKey) -> bool:
        """Return whether a leaderless partition waits only for brokers that shut down cleanly.

        These are all brokers that may lead it: the last members of its ISR, or its last known
        leaders if the ISR is empty. Each is in a controlled shutdown, or was when it was fenced.
        """
        last = shape.isr or shape.last_known or shape.elr
        brokers = [self.brokers.get(broker_id) for broker_id in last]
        return bool(last) and all(broker is not None and broker.shutting_down for broker in brokers)

    def each_partition(self) -> Iterator[PartitionState]:
        yield from self.partitions.values()


def partition_key(index: int, topic_id: bytes) -> bytes:
    """Return the bytes of a partition in a framed record: index and topic ID."""
    return index.to_bytes(4, "big", signed=True) + topic_id
