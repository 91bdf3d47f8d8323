"""The table that carries out what the partitions of one broker want done: a row for each effect.

A row calls who does it: the partition's audience, fetchers, coordinators, the tier, the flusher,
the queue of AlterPartition.
What they do at once may lead to further effects of the same partition, which is whole by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker.replication.effects import (
    Committed,
    Effect,
    Effects,
    Elected,
    EpochsUnsaved,
    FlushWanted,
    Followed,
    Interrupted,
    IsrChanged,
    LocalLogsMoved,
    LowWatermarkMoved,
    Propose,
    Readable,
    Released,
    Resigned,
    Stopped,
)
from broker.replication.isr import IsrProposal
from broker.replication.partition import Partition
from broker.replication.tier_listener import NoTier, TierListener


class LeadershipListener(Protocol):
    """Told about roles of the partitions of one topic (coordinators)."""

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads from now on."""

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        """It leads no longer; None: the replica is gone."""


class FetcherPort(Protocol):
    """Whoever fetches from leaders. The partition knows whom it follows."""

    def follow(self, partition: Partition) -> None:
        """Fetch it from its leader, from the log end on."""

    def unfollow(self, partition: Partition) -> None:
        """Fetch it no longer; a partition that is not fetched is fine."""

    def restate(self, partition: Partition) -> None:
        """Tell its leader what it has locally, if that has changed; as `unfollow`."""


class _NoFetchers:
    """Fetches nothing."""

    def follow(self, partition: Partition) -> None:
        return

    def unfollow(self, partition: Partition) -> None:
        return

    def restate(self, partition: Partition) -> None:
        return


class EffectTable:
    """See the module. Whoever does something is set once there is one; until then nobody does it,
    but epochs, which are written at once."""

    def __init__(self, local_logs_moved: Callable[[Partition], None]) -> None:
        """`local_logs_moved` asks a partition whether it has to report now."""
        self.flush: Callable[[Partition], None] = lambda partition: None
        self.save_epochs: Callable[[Partition], None] = self._save_epochs_at_once
        self.propose: Callable[[Partition, IsrProposal], None] = lambda partition, proposal: None
        self.local_logs_moved = local_logs_moved
        self.fetchers: FetcherPort = _NoFetchers()
        self.tier: TierListener = NoTier()
        self.listeners: dict[str, list[LeadershipListener]] = {}
        """By topic."""
        self._rows: dict[type[Effect], Callable[[Partition, Any], None]] = {
            # These two by themselves: each batch comes here, and a lambda is a call more.
            Readable: Partition.tell_appended,
            Committed: Partition.tell_committed,
            IsrChanged: lambda partition, _: partition.tell_isr_changed(),
            LowWatermarkMoved: lambda partition, effect: partition.tell_low_watermark(
                effect.low_watermark
            ),
            Interrupted: lambda partition, _: partition.interrupt(),
            Released: lambda partition, effect: partition.release(effect.error),
            FlushWanted: lambda partition, _: self.flush(partition),
            EpochsUnsaved: lambda partition, _: self.save_epochs(partition),
            Propose: lambda partition, effect: self.propose(partition, effect.proposal),
            LocalLogsMoved: lambda partition, _: self.local_logs_moved(partition),
            Resigned: self._resigned,
            Elected: self._elected,
            Followed: self._followed,
            Stopped: self._stopped,
        }

    def carry_out(self, partition: Partition, effects: Effects) -> None:
        """In this order: who has to do with a role is told in the order it relies on."""
        for effect in effects:
            self._rows[type(effect)](partition, effect)

    def _resigned(self, partition: Partition, effect: Resigned) -> None:
        for listener in self.listeners.get(partition.topic, ()):
            listener.resigned(partition.index, effect.leader_epoch)

    def _elected(self, partition: Partition, _: Elected) -> None:
        self.fetchers.unfollow(partition)
        for listener in self.listeners.get(partition.topic, ()):
            listener.elected(partition.index, partition.leader_epoch)
        self.tier.led(partition)

    def _followed(self, partition: Partition, _: Followed) -> None:
        self.fetchers.unfollow(partition)
        if partition.leader_id >= 0:
            self.fetchers.follow(partition)
        self.tier.followed(partition)

    def _stopped(self, partition: Partition, _: Stopped) -> None:
        self.fetchers.unfollow(partition)
        self.tier.stopped(partition)

    def _save_epochs_at_once(self, partition: Partition) -> None:
        partition.log.write_epochs()
        self.carry_out(partition, partition.epochs_saved())
