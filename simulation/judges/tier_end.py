"""Tiered storage at the end of a run: the store has exactly the objects of finished copies (S3, S9,
S10), and every broker knows the same copies (S6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.ids import TopicId
from simulation.judges.copy_turns import copied_end
from simulation.judges.tier_losses import TierLosses
from simulation.judges.tier_state import TierState, epochs_of, tier_of
from simulation.judges.tier_truth import (
    COPY_FINISHED,
    COPY_STARTED,
    Copy,
    Epochs,
    TierTruth,
    epoch_at,
)
from simulation.world.invariants import Key
from storage.tiered.values import RemotePartition

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import Machine
    from storage.log.log import Log


class TierEnd:
    """The judge of the end."""

    def __init__(self, world: JudgedWorld, state: TierState) -> None:
        self._world = world
        self._promises = world.promises
        self._state = state

    def missing(self) -> str | None:
        """Return a closed segment without copy, a dangling object, or a difference between brokers
        (S9)."""
        image = self._promises.metadata.image
        named: set[str] = set()
        unfinished: set[str] = set()
        for key, copies in self._state.truth.of.items():
            topic = image.topics.by_id.get(key[0])
            for copy in copies.values():
                where = f"{copy} of {topic.name if topic is not None else 'a deleted topic'}"
                if key in self._state.losses.keys and (
                    topic is None
                    or (
                        copy.state <= COPY_FINISHED and copy.segment_id in self._state.losses.copies
                    )
                ):
                    unfinished |= copy.names
                    continue
                if topic is None:
                    return f"S10: {where} is there"
                if copy.state == COPY_STARTED and self.is_wanted(copy):
                    unfinished |= copy.names
                    continue
                if copy.state != COPY_FINISHED:
                    return f"S3: {where} is in state {copy.state}"
                named |= copy.names
        lost = self._state.losses.names(named)
        stored = set(self._world.store.bucket.keys) - (self._state.late - named) - unfinished - lost
        if stored != named:
            return (
                f"S3: the store has {sorted(stored - named)[:3]}, which no copy names, and lacks "
                f"{sorted(named - stored)[:3]}"
            )
        return next(self._behind(), None)

    def is_wanted(self, copy: Copy) -> bool:
        """Return whether an abandoned copy still stays.

        It stays until a finished copy has its part of the leader's log. No copy will have it while
        its segment is not closed (seed 3006), or copying is disabled (seed 8915). No other copy
        will ever have it if local segments were deleted because of a record that the metadata topic
        has lost since: then this copy may be the only one with these offsets (seed 90150).
        """
        image = self._promises.metadata.image.topics.partition(*copy.key)
        for machine, one in self._state.replicas(copy.key):
            if image is not None and machine.node_id == image.leader:
                epochs, log = epochs_of(one.log), one.log
                closed = copied_end(log) if self._state.copies(one.topic) else 0
                first = max(copy.begins, log.local_log_start_offset, closed)
                end = min(copy.last + 1, log.log_end_offset)
                return any(
                    epoch_at(copy.epochs, at) == epoch_at(epochs, at) for at in range(first, end)
                ) or _is_alone(copy, log, epochs, self._state.losses, self._state.truth)
        return False

    def _behind(self) -> Iterator[str]:
        """Yield closed segments without a copy (S9), and brokers that know other copies (S6)."""
        for topic in self._promises.metadata.image.topics.by_id.values():
            for index, partition in topic.partitions.items():
                key = (topic.id, index)
                for machine, one in self._state.replicas(key) if self._state.is_tiered(key) else ():
                    if one.log.history.lacks_remote_part:
                        yield f"S5: {machine.host} does not know all epochs of {topic.name}-{index}"
                    where = f"{machine.host}, {topic.name}-{index}"
                    if one.topic_id == topic.id and machine.node_id == partition.leader:
                        active = copied_end(one.log)
                        start = max(one.log.log_start_offset, self._state.floor.get(key, 0))
                        start = self._state.losses.start_of(key, start)
                        at = self._state.truth.uncovered(key, epochs_of(one.log), start, active)
                        if at is not None and self._state.copies(topic.name):
                            yield f"S9: {where}: no copy has {at}, closed is all below {active}"
                    yield from self._strangers(where, machine, key, topic.name)

    def _strangers(self, where: str, machine: Machine, key: Key, topic: str) -> Iterator[str]:
        tier = None if machine.life is None else tier_of(machine.life)
        if tier is None:
            return
        known = tier.journal.cache(RemotePartition(TopicId(key[0]), key[1], topic))
        if known is None:
            yield f"S6: {where} does not know its copies"
            return
        mine = {(one.segment_id, int(one.state)) for one in known.segments()}
        there = {(one.segment_id, one.state) for one in self._state.truth.of.get(key, {}).values()}
        if mine != there:
            yield f"S6: {where} knows {len(mine)} copies, the records tell of {len(there)}"


def _is_alone(copy: Copy, log: Log, epochs: Epochs, losses: TierLosses, truth: TierTruth) -> bool:
    """Return whether the copy has offsets of the leader's log that are neither on its disk nor in a
    finished copy, and that a lost record listed."""
    below = range(
        max(copy.begins, log.log_start_offset),
        min(copy.last + 1, log.local_log_start_offset),
    )
    return any(
        losses.explains(copy.key, at)
        and epoch_at(copy.epochs, at) == epoch_at(epochs, at)
        and truth.uncovered(copy.key, epochs, at, at + 1) is not None
        for at in below
    )
