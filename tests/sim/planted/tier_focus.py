"""A small cluster with tiered storage: two topics with few local records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from simulation.shapes.shape import Shape, TopicShape
from simulation.shapes.tier import FIXED, METADATA, rereaders
from tests.sim.planted.focus import Focus

SETTINGS = {
    **FIXED,
    "log.retention.check.interval.ms": "300",
    "remote.log.manager.task.interval.ms": "300",
    "remote.log.manager.task.retry.backoff.ms": "100",
    "remote.log.manager.task.retry.backoff.max.ms": "500",
    f"{METADATA}topic.num.partitions": "1",
    f"{METADATA}topic.replication.factor": "3",
    f"{METADATA}topic.min.isr": "2",
    f"{METADATA}consume.wait.ms": "2000",
}
TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "2048",
    "local.retention.bytes": "1",
}
KEEPS = TopicShape("t0", 1, 3, {**TIERED, "min.insync.replicas": "2"})
SHRINKS = TopicShape("t1", 1, 2, {**TIERED, "retention.bytes": "12000"})

_LAG = {"remote.copy.lag.ms": "-1"}
"""Copies wait for the local retention, in bytes and in time."""
BY_SIZE = {**TIERED, **_LAG, "local.retention.bytes": "4000"}
BY_TIME = {**TIERED, **_LAG, "local.retention.bytes": "-2", "local.retention.ms": "400"}
LAGGING = (
    TopicShape("t0", 1, 3, {**BY_SIZE, "min.insync.replicas": "2"}),
    TopicShape("t1", 1, 2, BY_TIME),
)


@dataclass(frozen=True)
class TierFocus(Focus):
    """A cluster with consumers that often begin again."""

    def shape(self) -> Shape:
        """Return the shape of the cluster, without faults."""
        shape = super().shape()
        return replace(shape, clients=(*shape.clients, *rereaders(shape.topics, 100.0)))


TIER = TierFocus(topics=(KEEPS, SHRINKS), settings=SETTINGS)
METADATA_ALONE = replace(
    TIER,
    settings={
        **SETTINGS,
        f"{METADATA}topic.replication.factor": "1",
        f"{METADATA}topic.min.isr": "1",
    },
)
"""One broker has the metadata topic; the others continue with the records that they have read."""
LOST_END: tuple[int, str, str, dict[str, Any]] = (
    1_500,
    "tier topic cut",
    "the tier's metadata topic",
    {"which": 0, "records": 5, "back_ms": 1, "for_ms": 300},
)
"""The topic loses its last five records."""
