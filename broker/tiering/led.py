"""A partition that this broker leads, as the tier's drivers see it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from broker.tiering.counters import Backlog, TopicCounters
from storage.log.log import Log
from storage.tiered.cache import Outcome, SegmentCache
from storage.tiered.copying import LocalSegment
from storage.tiered.lineage import Lineage
from storage.tiered.values import RemotePartition, SegmentId, TierRecord


class Replica(Protocol):
    """What of a `Partition` is looked at."""

    @property
    def log(self) -> Log: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_leader(self) -> bool: ...


class TierMetadata(Protocol):
    """The journal, as far as drivers need it."""

    def cache(self, partition: RemotePartition) -> SegmentCache | None:
        """None until enough is known to act on."""

    def leaders_cache(self, partition: RemotePartition) -> SegmentCache | None:
        """None until enough is known to act on as the leader."""

    def write(self, record: TierRecord) -> Awaitable[Outcome]:
        """Returns when the record was read back. Raises TierUnavailable: it may be written even
        so."""


class Led:
    """A leadership of one epoch. It never comes back: another epoch is another `Led`."""

    __slots__ = (
        "backlog",
        "being_copied",
        "counters",
        "epoch",
        "has_read_all",
        "partition",
        "replica",
    )

    def __init__(
        self, replica: Replica, partition: RemotePartition, counters: TopicCounters
    ) -> None:
        self.replica = replica
        self.partition = partition
        self.epoch = replica.leader_epoch
        self.counters = counters
        self.backlog = Backlog()
        self.has_read_all = False
        """What the leaders before wrote is known."""
        self.being_copied: set[SegmentId] = set()
        """Copies that this leader has begun and not given up: nobody else's to clear away."""

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def holds(self) -> bool:
        """Whether this broker leads still, as far as it knows, in the same epoch. Looked at again
        after every wait."""
        return self.replica.is_leader and self.replica.leader_epoch == self.epoch

    @property
    def lineage(self) -> Lineage:
        log = self.replica.log
        return Lineage(log.epochs.entries, log.log_end_offset)

    def known(self, metadata: TierMetadata) -> SegmentCache | None:
        """What is known of the partition, where that and the log are fit to be acted on."""
        log = self.replica.log
        if not self.holds or log.failure is not None or log.closed or log.bootstrapping:
            return None
        if log.lacks_remote_epochs:
            return None  # no lineage can be told
        cache = metadata.leaders_cache(self.partition)
        return cache if cache is not None and cache.deletion is None else None


def local_segments(log: Log) -> list[LocalSegment]:
    """All segments of the log, the last one too."""
    segments = list(log.segments)
    ends = [one.base_offset for one in segments[1:]] + [log.log_end_offset]
    return [
        LocalSegment(one.base_offset, end, one.size_bytes)
        for one, end in zip(segments, ends, strict=True)
    ]
