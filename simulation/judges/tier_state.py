"""The state of tiered storage that its judge and the judge of the run's end share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.judges.tier_losses import TierLosses
from simulation.judges.tier_truth import Epochs, TierTruth
from simulation.shapes.shape import TIERED
from simulation.world.invariants import Key

if TYPE_CHECKING:
    from broker.replication.partition.partition import Partition
    from broker.tiering.tier import Tier
    from simulation.judges.committed import PartitionTruth
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import Machine, NodeLife
    from storage.log.log import Log

COPY_DISABLED = "remote.log.copy.disable"


class TierState:
    """The committed records of the tier, and the replicas of tiered partitions."""

    def __init__(self, world: JudgedWorld) -> None:
        self.truth = TierTruth()
        self.losses = TierLosses()
        """Of the metadata topic."""
        self.floor: dict[Key, int] = {}
        """The highest log start of any leader: records below it may be gone."""
        self.late: set[str] = set()
        """Objects that were written while another leader was deleting their copy."""
        self._world = world
        self._promises = world.promises

    def replicas(self, key: Key) -> list[tuple[Machine, Partition]]:
        """Return the open replicas of a partition on all running brokers."""
        found = []
        for machine in self._world.cluster.machines:
            life = machine.life
            node = None if life is None or not life.alive else life.node
            if node is None or node.broker is None:
                continue
            for one in node.broker.replicas:
                if (one.topic_id, one.index) == key and not one.log.closed:
                    found.append((machine, one))
        return [pair for pair in found if not pair[1].log.bounds.bootstrapping]

    def is_tiered(self, key: Key) -> bool:
        """Return whether the topic exists, and is tiered."""
        topic = self._promises.metadata.image.topics.by_id.get(key[0])
        return topic is not None and self._promises.configs(topic.name).get(TIERED) == "true"

    def kept(self, key: Key) -> PartitionTruth | None:
        """Return the committed records of a partition; None if unknown, or if its topic is in
        `given_up`."""
        truth = self._promises.partitions.get(key)
        if truth is None or truth.name.rpartition("-")[0] in self._promises.given_up:
            return None
        return truth

    def copies(self, topic: str) -> bool:
        """Return whether leaders copy segments of the topic."""
        return self._promises.configs(topic).get(COPY_DISABLED) != "true"

    def hole(self, one: Partition, start: int, end: int) -> int | None:
        """Return the first offset of [start, end) that no finished copy has, else None."""
        key, log = (one.topic_id, one.index), one.log
        start = self.losses.start_of(key, start)
        epochs, truth = epochs_of(log), self.kept(key)
        first = epochs[0][1] if epochs else log.log_end_offset
        if truth is not None and start < first:
            before = {epoch: base for base, _, epoch, _ in reversed(truth.batches.values())}
            epochs = [*sorted(one for one in before.items() if one[1] < first), *epochs]
        return self.truth.uncovered(key, epochs, start, end)


def tier_of(life: NodeLife) -> Tier | None:
    """Return the tier of a life's broker; None without one."""
    node = life.node
    context = None if node is None or node.broker is None else node.broker.context
    return None if context is None else context.tier


def epochs_of(log: Log) -> Epochs:
    """Return the leader epochs of a log, each with its first offset."""
    return [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
