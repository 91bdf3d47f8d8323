"""The cluster as the audit sees it while it reads: its own fold of the metadata records.

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

from audit.decoding.records import LEADER_STAYS, RECOVERY_STAYS, Delta

NO_LEADER = -1
RECOVERING = 1
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
MIN_ISR = "min.insync.replicas"
ELR_FEATURE = "eligible.leader.replicas.version"
UNCLEAN = "unclean.leader.election.enable"


class ShapeKey(NamedTuple):
    """Everything about a partition but its epochs."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    leader: int
    recovery: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    directories: tuple[bytes, ...]


class Shape:
    """A shared value of `ShapeKey` under one min ISR. `transitions` caches what changes do to it.

    min_isr: the configured one; effective_min_isr: never more than there are replicas.
    """

    __slots__ = ("effective_min_isr", "key", "leaderless", "min_isr", "transitions", "under")

    def __init__(self, key: ShapeKey, min_isr: int) -> None:
        self.key = key
        self.min_isr = min_isr
        self.effective_min_isr = min(min_isr, len(key.replicas))
        self.under = len(key.isr) < self.effective_min_isr
        self.leaderless = key.leader == NO_LEADER
        self.transitions: dict[Delta, Any] = {}


class Shapes:
    """All shapes in use, each once."""

    ENTRIES_MAX = 500_000

    def __init__(self) -> None:
        self._known: dict[tuple[ShapeKey, int], Shape] = {}

    def get(self, key: ShapeKey, min_isr: int) -> Shape:
        shape = self._known.get((key, min_isr))
        if shape is None:
            if len(self._known) >= self.ENTRIES_MAX:
                self._known.clear()  # shapes in use live on; the others are made again
            shape = self._known[key, min_isr] = Shape(key, min_isr)
        return shape

    def forget_transitions(self) -> None:
        """What was worked out under other rules is worked out again."""
        for shape in self._known.values():
            shape.transitions.clear()


def merged(before: ShapeKey, delta: Delta) -> ShapeKey:
    """The partition after a change."""
    return ShapeKey(
        replicas=before.replicas if delta.replicas is None else delta.replicas,
        isr=before.isr if delta.isr is None else delta.isr,
        elr=before.elr if delta.elr is None else delta.elr,
        last_known=before.last_known if delta.last_known is None else delta.last_known,
        leader=before.leader if delta.leader == LEADER_STAYS else delta.leader,
        recovery=before.recovery if delta.recovery == RECOVERY_STAYS else delta.recovery,
        adding=before.adding if delta.adding is None else delta.adding,
        removing=before.removing if delta.removing is None else delta.removing,
        directories=before.directories if delta.directories is None else delta.directories,
    )


class Topic:
    """`min_isr` is the configured value that is in force for the topic now."""

    __slots__ = ("id", "min_isr", "name", "partitions")

    def __init__(self, topic_id: bytes, name: str, min_isr: int) -> None:
        self.id = topic_id
        self.name = name
        self.min_isr = min_isr
        self.partitions: dict[int, Partition] = {}


class Partition:
    """One partition now. `offset` is that of the last record about it, -1 if only a snapshot said
    it. `certain` is false after a hole in the log: changes may be missing.

    The `*_since_ms` say since when it is without leader or below min ISR; None if it is not.
    """

    __slots__ = (
        "certain",
        "index",
        "leader_epoch",
        "leaderless_since_ms",
        "offset",
        "partition_epoch",
        "shape",
        "topic",
        "under_since_ms",
    )

    def __init__(
        self, topic: Topic, index: int, shape: Shape, leader_epoch: int, partition_epoch: int
    ) -> None:
        self.topic = topic
        self.index = index
        self.shape = shape
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.offset = -1
        self.certain = True
        self.under_since_ms: int | None = None
        self.leaderless_since_ms: int | None = None


class Broker(NamedTuple):
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


class World:
    """The whole cluster. Only `audit.replay.replay` changes it."""

    def __init__(self, default_min_isr: int = 1) -> None:
        self.default_min_isr = default_min_isr
        self.shapes = Shapes()
        self.topics: dict[bytes, Topic] = {}
        self.names: dict[str, Topic] = {}
        self.partitions: dict[bytes, Partition] = {}
        self.brokers: dict[int, Broker] = {}
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
        """Whether a leaderless partition waits only for brokers that took their leave: all that may
        lead it, the last members of its ISR (or, with an empty one, its last known leaders), are in
        a controlled shutdown or were when they were fenced."""
        last = shape.isr or shape.last_known or shape.elr
        brokers = [self.brokers.get(broker_id) for broker_id in last]
        return bool(last) and all(broker is not None and broker.shutting_down for broker in brokers)

    def each_partition(self) -> Iterator[Partition]:
        yield from self.partitions.values()


def partition_key(index: int, topic_id: bytes) -> bytes:
    """The bytes that name a partition in a framed record: index and topic id."""
    return index.to_bytes(4, "big", signed=True) + topic_id


def describe(shape: ShapeKey, leader_epoch: int, partition_epoch: int) -> dict[str, Any]:
    """A partition as findings show it."""
    shown: dict[str, Any] = {
        "leader": shape.leader,
        "leader_epoch": leader_epoch,
        "partition_epoch": partition_epoch,
        "replicas": list(shape.replicas),
        "isr": list(shape.isr),
        "elr": list(shape.elr),
        "last_known_elr": list(shape.last_known),
        "recovering": shape.recovery == RECOVERING,
    }
    if shape.adding:
        shown["adding"] = list(shape.adding)
    if shape.removing:
        shown["removing"] = list(shape.removing)
    return shown
