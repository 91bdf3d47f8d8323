"""Collaborators of a broker's replicas: the components that act on what replicas decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.replication.partition.isr import IsrProposal
from broker.replication.partition.partition import Partition
from broker.replication.replicas.tier_listener import NoTier, TierListener
from metalog.image.values import PartitionImage


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


@dataclass(frozen=True, slots=True)
class Collaborators:
    """All collaborators. Without one, its effects are ignored, except that epochs are written at
    once."""

    schedule: Callable[[], None] = lambda: None
    """Arrange calls of `ReplicaManager.advance`: there is new work in the backlog."""
    flush: Callable[[Partition], None] = lambda partition: None
    """Flush the log of a leader that cannot commit more before."""
    save_epochs: Callable[[Partition], None] | None = None
    """Write the epochs' file of a partition whose high watermark waits for it."""
    propose: Callable[[Partition, IsrProposal], None] = lambda partition, proposal: None
    """Propose an ISR to the controller."""
    report: Callable[[Partition], None] | None = None
    """Report a partition's local logs to the controller (KIP-1303)."""
    begin_reports: Callable[[], None] = lambda: None
    """Note, before `report`, a partition that may have to report."""
    role_given: Callable[[Partition, PartitionImage], None] = lambda partition, now: None
    """Note a replica that has received a role from this image."""
    fetchers: FetcherPort = _NoFetchers()
    tier: TierListener = NoTier()
    """The receiver of all events that concern tiered storage."""
