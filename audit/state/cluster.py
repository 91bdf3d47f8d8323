"""The state of the cluster as the audit replays it from metadata records.

This is on purpose not the product's replay table. A check that judged a log with the code that
wrote it would share its mistakes; here each record's effect is written a second time, in another
shape, and the check `snapshot-equality` compares the two whenever a snapshot stands in the log.

A partition's epochs change with nearly every record, the rest of it (its `Shape`) moves between few
values. Shapes are therefore shared objects, and what a given change does to a given shape, with
everything that follows from it alone, is worked out once (`audit.replay.transitions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from audit.state.shapes import Shape, ShapeKey, Shapes
from metalog.image.local_log import NO_LOCAL_LOGS

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
MIN_ISR = "min.insync.replicas"
ELR_FEATURE = "eligible.leader.replicas.version"
UNCLEAN = "unclean.leader.election.enable"


class TopicState:
    """`min_isr` is the configured value that is in force for the topic now."""

    __slots__ = ("id", "min_isr", "name", "partitions")

    def __init__(self, topic_id: bytes, name: str, min_isr: int) -> None:
        self.id = topic_id
        self.name = name
        self.min_isr = min_isr
        self.partitions: dict[int, PartitionState] = {}


class PartitionState:
    """One partition now. `offset` is that of the last record about it, -1 if only a snapshot said
    it. `certain` is false after a hole in the log: changes may be missing.

    `local_logs` is what was last reported of what its replicas have locally (KIP-1303): nothing
    that is judged depends on it, and so it is no part of the shape.

    The `*_since_ms` say since when it is without leader or below min ISR; None if it is not.
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
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.entities: dict[tuple[str, ...], Any] = {}

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELR_FEATURE, 0) > 0

    def min_isr_of(self, topic: str) -> int:
        """`min.insync.replicas` of a topic: its own, the cluster's, the default."""
        for key in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
            value = self.configs.get(key, {}).get(MIN_ISR, "")
            if value.isdigit():
                return int(value)
        return self.default_min_isr

    def setting(self, topic: str, name: str) -> str | None:
        """A setting that topic or cluster have in the metadata log."""
        for key in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
            value = self.configs.get(key, {}).get(name)
            if value is not None:
                return value
        return None

    def fenced_ids(self) -> set[int]:
        return {broker.id for broker in self.brokers.values() if broker.fenced}

    def went_in_order(self, shape: ShapeKey) -> bool:
        """Whether a leaderless partition waits only for brokers that shut down in order: all that
        may lead it, the last members of its ISR (or, with an empty one, its last known leaders),
        are in a controlled shutdown or were when they were fenced."""
        last = shape.isr or shape.last_known or shape.elr
        brokers = [self.brokers.get(broker_id) for broker_id in last]
        return bool(last) and all(broker is not None and broker.shutting_down for broker in brokers)

    def each_partition(self) -> Iterator[PartitionState]:
        yield from self.partitions.values()


def partition_key(index: int, topic_id: bytes) -> bytes:
    """The bytes that name a partition in a framed record: index and topic id."""
    return index.to_bytes(4, "big", signed=True) + topic_id
