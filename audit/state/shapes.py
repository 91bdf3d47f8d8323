"""Shapes of partitions: their state without the epochs."""

from __future__ import annotations

from typing import Any, NamedTuple

from audit.decoding.records import LEADER_STAYS, RECOVERY_STAYS, PartitionChange

NO_LEADER = -1
RECOVERING = 1


class ShapeKey(NamedTuple):
    """The state of a partition without its epochs."""

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
    """A shared `ShapeKey` with a min ISR. `transitions` caches the effects of changes.

    min_isr: the configured value; effective_min_isr: at most the number of replicas.
    """

    __slots__ = ("effective_min_isr", "key", "leaderless", "min_isr", "transitions", "under")

    def __init__(self, key: ShapeKey, min_isr: int) -> None:
        self.key = key
        self.min_isr = min_isr
        self.effective_min_isr = min(min_isr, len(key.replicas))
        self.under = len(key.isr) < self.effective_min_isr
        self.leaderless = key.leader == NO_LEADER
        self.transitions: dict[PartitionChange, Any] = {}


class Shapes:
    """All shapes in use, each once."""

    ENTRIES_MAX = 500_000

    def __init__(self) -> None:
        self._known: dict[tuple[ShapeKey, int], Shape] = {}

    def get(self, key: ShapeKey, min_isr: int) -> Shape:
        shape = self._known.get((key, min_isr))
        if shape is None:
            if len(self._known) >= self.ENTRIES_MAX:
                self._known.clear()  # shapes in use stay alive; the others are created again
            shape = self._known[key, min_isr] = Shape(key, min_isr)
        return shape

    def forget_transitions(self) -> None:
        """Drop all cached transitions, because they depend on a setting that has changed."""
        for shape in self._known.values():
            shape.transitions.clear()


def after_change(before: ShapeKey, change: PartitionChange) -> ShapeKey:
    """Return the partition after a change."""
    return ShapeKey(
        replicas=before.replicas if change.replicas is None else change.replicas,
        isr=before.isr if change.isr is None else change.isr,
        elr=before.elr if change.elr is None else change.elr,
        last_known=before.last_known if change.last_known is None else change.last_known,
        leader=before.leader if change.leader == LEADER_STAYS else change.leader,
        recovery=before.recovery if change.recovery == RECOVERY_STAYS else change.recovery,
        adding=before.adding if change.adding is None else change.adding,
        removing=before.removing if change.removing is None else change.removing,
        directories=before.directories if change.directories is None else change.directories,
    )


def describe(shape: ShapeKey, leader_epoch: int, partition_epoch: int) -> dict[str, Any]:
    """Return a partition as findings show it."""
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
