"""Eligible replicas according to KIP-966, computed from the committed records alone.

Of each partition: the number of losses that it survives, and the replicas that have been in ISR or
ELR since the ISR had min ISR. While the ISR is smaller nothing is committed, so each of these has
all committed records, unless its disk lost them. While the recovery manager is on, LastKnownELR is
that set without the present ISR and ELR (P8). No rule of the product is used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from metalog.image.values import ConfigResourceType, MetadataImage, PartitionImage
from simulation.shapes.shape import AGGRESSIVE, BALANCED, MANAGER, STRATEGY, TIMEOUT, UNCLEAN
from simulation.world.invariants import Key, require

DEFAULT_TIMEOUT_MS = 300_000


def min_isr(image: MetadataImage, topic: str) -> int:
    """Return `min.insync.replicas` of a topic, from its own configuration or the cluster's."""
    own: Mapping[str, str] = image.configs.get((ConfigResourceType.TOPIC, topic), {})
    common: Mapping[str, str] = image.configs.get((ConfigResourceType.BROKER, ""), {})
    key = "min.insync.replicas"
    return int(own.get(key, common.get(key, "1")))


def least_isr(image: MetadataImage, topic: str, one: PartitionImage) -> int:
    """Return the effective min ISR of a partition."""
    return min(min_isr(image, topic), len(one.replicas))


@dataclass
class PartitionElections:
    """The state of one partition.

    `floor` is the smallest min ISR since the ISR had it: fewer losses are survived. `known` were in
    ISR or ELR since then. `whole` means that the manager was on all the time. `leaderless_s` is the
    time since when there is no leader, `leaderless_ms` the same by its controller's clock.
    """

    floor: int = 0
    known: set[int] = field(default_factory=set)
    whole: bool = False
    leaderless_s: float | None = None
    leaderless_ms: int = 0


class ElectionTruth:
    """The state of all partitions. `static` are the settings of all nodes."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static = static
        self.image: MetadataImage | None = None
        self.of: dict[Key, PartitionElections] = {}
        self._changed: set[Key] = set()

    # --- configurations -----------------------------------------------------------------------

    def managed(self, image: MetadataImage) -> bool:
        """Return whether the recovery manager is on."""
        common: Mapping[str, str] = image.configs.get((ConfigResourceType.BROKER, ""), {})
        return common.get(MANAGER, self._static.get(MANAGER, "false")) == "true"

    def strategy(self, image: MetadataImage, topic: str) -> str:
        """Return the strategy in force for a topic: its own configuration precedes the cluster's,
        and in each of them the newer key precedes."""
        own: Mapping[str, str] = image.configs.get((ConfigResourceType.TOPIC, topic), {})
        stored: Mapping[str, str] = image.configs.get((ConfigResourceType.BROKER, ""), {})
        for configs in (own, {**self._static, **stored}):
            if STRATEGY in configs:
                return configs[STRATEGY]
            if UNCLEAN in configs:
                return AGGRESSIVE if configs[UNCLEAN] == "true" else BALANCED
        return BALANCED

    def timeout_ms(self, image: MetadataImage) -> int:
        """Return how long an election waits for answers that it does not need."""
        common: Mapping[str, str] = image.configs.get((ConfigResourceType.BROKER, ""), {})
        return int(common.get(TIMEOUT, self._static.get(TIMEOUT, DEFAULT_TIMEOUT_MS)))

    # --- records ------------------------------------------------------------------------------

    def changed(
        self,
        key: Key,
        old: PartitionImage | None,
        new: PartitionImage,
        now_s: float,
        written_ms: int,
    ) -> None:
        """Update a partition after a record changed it.

        Raises: Violation (P21) for a record of a leaderless partition that changes nothing: a
            controller that waits for answers writes nothing.
        """
        if old is not None and old.leader < 0 and new.leader < 0:
            same = new._replace(partition_epoch=old.partition_epoch, leader_epoch=old.leader_epoch)
            require(same != old, f"P21: a record without an election changes nothing of {old}")
        mine = self.of.setdefault(key, PartitionElections())
        before = () if old is None else (*old.isr, *old.elr)
        mine.known = (mine.known | {*before, *new.isr, *new.elr}) & set(new.replicas)
        if new.leader >= 0:
            mine.leaderless_s = None
        elif old is None or old.leader >= 0:
            mine.leaderless_s, mine.leaderless_ms = now_s, written_ms
        self._changed.add(key)

    def after_batch(self, image: MetadataImage, where: str) -> None:
        """Update all partitions once the records of a batch are replayed. Raises: Violation
        (P8)."""
        changed, self._changed = self._changed, set()
        before, self.image = self.image, image
        settled = (
            before is not None
            and before.configs is image.configs
            and before.features is image.features
            and before.topics is image.topics
        )
        if settled:
            return
        managed = self.managed(image) and image.elr_enabled
        for topic in image.topics.by_id.values():
            for index, one in topic.partitions.items():
                key = (topic.id, index)
                mine = self.of.setdefault(key, PartitionElections())
                least = least_isr(image, topic.name, one)
                if len(one.isr) >= least:
                    mine.floor, mine.known, mine.whole = least, set(one.isr), managed
                    continue
                mine.floor = min(mine.floor, least) if mine.floor else least
                mine.whole = mine.whole and managed
                if mine.whole and key in changed:
                    _whole_set(f"{where}, {topic.name}-{index}", mine.known, one)


def _whole_set(where: str, known: Iterable[int], one: PartitionImage) -> None:
    wanted = set(known) - {*one.isr, *one.elr}
    require(
        set(one.last_known_elr) == wanted,
        f"P8: {where}: LastKnownELR {one.last_known_elr}, who had everything is {sorted(wanted)}: "
        f"ISR {one.isr}, ELR {one.elr}",
    )
