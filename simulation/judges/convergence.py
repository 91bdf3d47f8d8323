"""Convergence of a cluster: every partition led, in sync, and whole on every replica (P26)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from broker.replication.partition.partition import Partition
from simulation.judges.committed import PartitionTruth
from simulation.judges.metadata import MetadataTruth
from simulation.world.invariants import Key


class Convergence:
    """Reports the first thing that keeps the cluster from convergence, in words; None if nothing
    does.

    `replica` returns a broker's own replica of a partition, None without an open one.
    """

    def __init__(
        self,
        metadata: MetadataTruth,
        partitions: Mapping[Key, PartitionTruth],
        given_up: Collection[str],
        replica: Callable[[int, Key], Partition | None],
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._given_up = given_up
        self._replica = replica
        self._backlog: dict[Key, int] = {}

    def out_of_sync(self) -> str | None:
        """Return a partition that has no leader or not all replicas in the ISR, else None."""
        for topic in self._metadata.image.topics.by_id.values():
            for index, image in topic.partitions.items():
                moving = bool(image.adding or image.removing)
                if sorted(image.isr) != sorted(image.replicas) or image.leader < 0 or moving:
                    return (
                        f"{topic.name}-{index}: leader {image.leader}, ISR {image.isr}, replicas "
                        f"{image.replicas}{', moving' if moving else ''}"
                    )
        return None

    def backlog(self) -> str | None:
        """Return a partition whose leader has not yet committed all records that it had at the
        first call, else None.

        ISR members may be far behind after a high watermark stood still for long, and producers
        wait until they have caught up.
        """
        behind: list[str] = []
        for topic in self._metadata.image.topics.by_id.values():
            for index, image in topic.partitions.items():
                leader = self._replica(image.leader, (topic.id, index))
                if leader is None:
                    continue
                log = leader.log
                end = self._backlog.setdefault((topic.id, index), log.log_end_offset)
                if log.high_watermark < min(end, log.log_end_offset):
                    behind.append(
                        f"{topic.name}-{index}: committed is {log.high_watermark} of {end}"
                    )
        return min(behind, default=None)

    def whole(self) -> str | None:
        """Return what is still missing after the faults, None if every replica has all records."""
        apart = self.out_of_sync()
        if apart is not None:
            return apart
        for key, truth in self._partitions.items():
            image = self._metadata.image.topics.partition(*key)
            if image is None:
                continue  # its topic is deleted
            for node_id in image.replicas:
                one = self._replica(node_id, key)
                if one is None or one.leader_epoch != image.leader_epoch:
                    return f"{truth.name}: {node_id} does not know epoch {image.leader_epoch}"
                end = truth.end
                if one.topic in self._given_up:
                    leader = self._replica(image.leader, key)
                    end = -1 if leader is None else leader.log.log_end_offset
                ends = (one.log.log_end_offset, one.log.high_watermark)
                if ends != (end, end):
                    return f"{truth.name}: {node_id} is at {ends}, committed is {end}"
                if one.isr != one.maximal_isr or one.isr != frozenset(image.isr):
                    return f"{truth.name}: {node_id} knows the ISR {one.isr}, {one.maximal_isr}"
        return None if self._partitions else "no partition exists"
