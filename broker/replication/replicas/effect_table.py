"""Table that carries out the effects of a broker's partitions: one row for each kind of effect.

A row calls the component in charge: fetchers, coordinators, the tier, the flusher, or the
AlterPartition queue. The rows of notifications are those of the partition's subscriptions. All this
synchronous work may produce further effects of the same partition, whose state is consistent by
then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from broker.replication.partition.partition import Partition
from broker.replication.replicas.collaborators import Collaborators, LeadershipListener
from broker.replication.subscriptions.subscriptions import NOTIFY


class EffectTable:
    """The rows of all effects, and the collaborators that carry them out."""

    def __init__(self, local_logs_moved: Callable[[Partition], None]) -> None:
        """Set up the rows. `local_logs_moved` checks whether a partition has to report now."""
        self.to = Collaborators()
        self.local_logs_moved = local_logs_moved
        self.listeners: dict[str, list[LeadershipListener]] = {}
        """Listeners by topic."""
        self._rows: dict[type[Effect], Callable[[Partition, Any], None]] = {
            FlushWanted: lambda partition, _: self.to.flush(partition),
            EpochsUnsaved: self._save_epochs,
            Propose: lambda partition, effect: self.to.propose(partition, effect.proposal),
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
        self.to.fetchers.unfollow(partition)
        for listener in self.listeners.get(partition.topic, ()):
            listener.elected(partition.index, partition.leader_epoch)
        self.to.tier.led(partition)

    def _followed(self, partition: Partition, _: Followed) -> None:
        self.to.fetchers.unfollow(partition)
        if partition.leader_id >= 0:
            self.to.fetchers.follow(partition)
        self.to.tier.followed(partition)

    def _stopped(self, partition: Partition, _: Stopped) -> None:
        self.to.fetchers.unfollow(partition)
        self.to.tier.stopped(partition)

    def _save_epochs(self, partition: Partition, _: EpochsUnsaved) -> None:
        if self.to.save_epochs is not None:
            self.to.save_epochs(partition)
            return
        partition.log.history.write()
        self.carry_out(partition, epochs_saved(partition))
