"""Table that carries out the effects of a broker's partitions: one row for each kind of effect.

A row calls the component in charge: fetchers, coordinators, the tier, the flusher, or the
AlterPartition queue. The rows of notifications are those of the partition's subscriptions. All this
synchronous work may produce further effects of the same partition, whose state is consistent by
then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker.replication.partition.effects import (
    Effect,
    Effects,
    Elected,
    EpochsUnsaved,
    FlushWanted,
    Followed,
    LocalLogsMoved,
    Propose,
    Resigned,
    Stopped,
)
from broker.replication.partition.high_watermark import epochs_saved
from broker.replication.partition.isr import IsrProposal
from broker.replication.partition.partition import Partition
from broker.replication.replicas.tier_listener import NoTier, TierListener
from broker.replication.subscriptions.subscriptions import NOTIFY


class LeadershipListener(Protocol):
    """Receiver of role changes in the partitions of one topic (coordinators)."""

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Note that this broker leads the partition from now on."""

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        """Note that this broker no longer leads the partition; `leader_epoch`:
        None after the replica was removed."""


class FetcherPort(Protocol):
    """The component that fetches from leaders. The partition knows its own leader."""

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from its leader, starting at the log end."""

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching the partition; one that is not fetched is ignored."""

    def restate(self, partition: Partition) -> None:
        """Report to its leader what the partition has locally, if that has changed. A partition
        that is not fetched is ignored."""


class _NoFetchers:
    """A port that fetches nothing."""

    def follow(self, partition: Partition) -> None:
        return

    def unfollow(self, partition: Partition) -> None:
        return

    def restate(self, partition: Partition) -> None:
        return


class EffectTable:
    """The rows of all effects. Each component is set once it exists. Until then its effects are
    ignored, except that epochs are written at once."""

    def __init__(self, local_logs_moved: Callable[[Partition], None]) -> None:
        """Set up the rows. `local_logs_moved` checks whether a partition has to report now."""
        self.flush: Callable[[Partition], None] = lambda partition: None
        self.save_epochs: Callable[[Partition], None] = self._save_epochs_at_once
        self.propose: Callable[[Partition, IsrProposal], None] = lambda partition, proposal: None
        self.local_logs_moved = local_logs_moved
        self.fetchers: FetcherPort = _NoFetchers()
        self.tier: TierListener = NoTier()
        self.listeners: dict[str, list[LeadershipListener]] = {}
        """Listeners by topic."""
        self._rows: dict[type[Effect], Callable[[Partition, Any], None]] = {
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
        """Carry out the effects in their order: listeners of role changes rely on it."""
        for effect in effects:
            kind = type(effect)
            notify = NOTIFY.get(kind)
            if notify is not None:
                notify(partition.subscriptions, effect)
            else:
                self._rows[kind](partition, effect)

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
        self.carry_out(partition, epochs_saved(partition))
