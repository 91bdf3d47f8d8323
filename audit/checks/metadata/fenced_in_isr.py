"""No fenced broker is in an ISR (P10), checked at the end of each batch.

Without ELR the last member of a partition that lost its leader stays in the ISR: it is the only
replica known to have every committed record.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import BatchEnd, BatchEndCheck
from audit.findings.finding import Complaint
from audit.state.cluster import ClusterState, PartitionState
from audit.state.shapes import NO_LEADER, describe


class FencedInIsr(BatchEndCheck):
    name = "fenced-in-isr"

    def on_batch_end(self, end: BatchEnd) -> Iterable[Complaint]:
        cluster = end.cluster
        if end.fenced:
            for partition in cluster.each_partition():
                if not end.fenced.isdisjoint(partition.shape.key.isr):
                    yield from self._judge(cluster, partition, set(end.fenced))
        if end.grown:
            fenced = cluster.fenced_ids()
            if fenced:
                for partition in end.grown:
                    if not fenced.isdisjoint(partition.shape.key.isr):
                        yield from self._judge(cluster, partition, fenced)

    def _judge(
        self, cluster: ClusterState, partition: PartitionState, fenced: set[int]
    ) -> Iterable[Complaint]:
        shape = partition.shape.key
        if not partition.certain:
            return
        last_one = shape.leader == NO_LEADER and len(shape.isr) == 1
        if last_one and not cluster.elr_enabled:
            return
        there = sorted(fenced & set(shape.isr))
        brokers = ", ".join(map(str, there))
        yield Complaint(
            f"fenced broker {brokers} is in the ISR {list(shape.isr)} of "
            f"{partition.topic.name}-{partition.index}",
            before={"fenced": sorted(cluster.fenced_ids())},
            after=describe(shape, partition.leader_epoch, partition.partition_epoch),
            topic=partition.topic.name,
            partition=partition.index,
        )
