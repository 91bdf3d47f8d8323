"""Eligible replicas as KIP-966 has them, worked out from the committed records alone.

Of each partition: how many losses it survives, and who has been in ISR or ELR since the ISR was at
min ISR. While the ISR is below it nothing is committed, so each of these has all that was, unless
its disk lost it. While the recovery manager is on LastKnownELR is that set without those that ISR
and ELR have now (P8). Nothing of this is asked of the product's own rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from metalog.image.values import ConfigResourceType, MetadataImage, PartitionImage
from simulation.shape import AGGRESSIVE, BALANCED, MANAGER, STRATEGY, TIMEOUT, UNCLEAN
from simulation.world.invariants import Key, require

DEFAULT_TIMEOUT_MS = 300_000


def min_isr(image: MetadataImage, topic: str) -> int:
    """`min.insync.replicas` of a topic, by its own configuration or the cluster's."""
    own: Mapping[str, str] = image.configs.get((ConfigResourceType.TOPIC, topic), {})
    common: Mapping[str, str] = image.configs.get((ConfigResourceType.BROKER, ""), {})
    key = "min.insync.replicas"
    return int(own.get(key, common.get(key, "1")))


def least_isr(image: MetadataImage, topic: str, one: PartitionImage) -> int:
    """The effective min ISR of a partition."""
    return min(min_isr(image, topic), len(one.replicas))


@dataclass
class PartitionElections:
    """One partition. `floor` is the smallest min ISR since the ISR had it: fewer losses are
    survived. `known` were in ISR or ELR since then, `whole` says that the manager was on all the
    time; `leaderless_s`: since when nobody leads, `leaderless_ms` as its controller says."""

    floor: int = 0
    known: set[int] = field(default_factory=set)
    whole: bool = False
    leaderless_s: float | None = None
    leaderless_ms: int = 0


class ElectionTruth:
    """All partitions. `static` are the settings of all nodes."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static = static
        self.image: MetadataImage | None = None
        self.of: dict[Key, PartitionElections] = {}
        self._changed: set[Key] = set()

    # --- configurations -----------------------------------------------------------------------

    def managed(self, image: MetadataImage) -> bool:
        """Whether the recovery manager is on."""
        common: Mapping[str, str] = image.configs.get((ConfigResourceType.BROKER, ""), {})
        return common.get(MANAGER, self._static.get(MANAGER, "false")) == "true"

    def strategy(self, image: MetadataImage, topic: str) -> str:
        """The strategy in force for a topic: its own comes first, and in each place the newer
        key."""
        own: Mapping[str, str] = image.configs.get((ConfigResourceType.TOPIC, topic), {})
        stored: Mapping[str, str] = image.configs.get((ConfigResourceType.BROKER, ""), {})
        for configs in (own, {**self._static, **stored}):
            if STRATEGY in configs:
                return configs[STRATEGY]
            if UNCLEAN in configs:
                return AGGRESSIVE if configs[UNCLEAN] == "true" else BALANCED
        return BALANCED

    def timeout_ms(self, image: MetadataImage) -> int:
        """How long answers of those that are not needed are waited for."""
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
        """A record has changed a partition. Raises Violation (P21) for one that says nothing of one
        without leader: who waits for answers writes nothing."""
        if old is not None and old.leader < 0 and new.leader < 0:
            same = new._replace(partition_epoch=old.partition_epoch, leader_epoch=old.leader_epoch)
            require(same != old, f"P21: a record without an election says nothing new of {old}")
        mine = self.of.setdefault(key, PartitionElections())
        before = () if old is None else (*old.isr, *old.elr)
        mine.known = (mine.known | {*before, *new.isr, *new.elr}) & set(new.replicas)
        if new.leader >= 0:
            mine.leaderless_s = None
        elif old is None or old.leader >= 0:
            mine.leaderless_s, mine.leaderless_ms = now_s, written_ms
        self._changed.add(key)

    def after_batch(self, image: MetadataImage, where: str) -> None:
        """The records of a batch are all replayed. Raises Violation (P8)."""
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
