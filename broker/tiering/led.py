"""A partition that this broker leads, as the tier's drivers see it."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import NamedTuple, Protocol

from broker.tiering.counters import Backlog, TopicCounters
from storage.log.config import LogConfig
from storage.log.epochs import EpochCache
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
        "idle",
        "idle_until_ms",
        "partition",
        "replica",
        "taken_back",
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
        self.taken_back: set[SegmentId] = set()
        """Copies that it has given up, and not cleared away."""
        self.idle: dict[str, Seen] = {}
        """What each kind of pass saw when it last found nothing to do."""
        self.idle_until_ms = 0.0
        """When time alone gives the expiry something to do."""

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


class Seen(NamedTuple):
    """What a pass goes by, but for the time: while it is the same there is nothing new to decide.

    Of thousands of partitions few have changed since the pass before, and the lineage of a log with
    all its copies takes a hundred times as long as a look at this."""

    log: Log
    config: LogConfig
    cache: SegmentCache
    cache_changes: int
    epochs: EpochCache
    epoch_changes: int
    starts: tuple[int, int]
    stable: tuple[int, int]
    log_end: int
    segments: tuple[int, int, int]
    """How many there are locally, the base of the last, and bytes of all."""
    being_copied: frozenset[SegmentId]


def seen_by(
    log: Log, cache: SegmentCache, being_copied: Collection[SegmentId] = frozenset()
) -> Seen:
    """See `Seen`, as it is now."""
    segments, epochs = log.segments, log.epochs
    return Seen(
        log,
        log.config,
        cache,
        cache.changes,
        epochs,
        epochs.changes,
        (log.log_start_offset, log.local_log_start_offset),
        (log.last_stable_offset, log.high_watermark),
        log.log_end_offset,
        (len(segments), segments.active.base_offset, segments.size_bytes),
        frozenset(being_copied),
    )


def local_segments(log: Log) -> list[LocalSegment]:
    """All segments of the log, the last one too."""
    segments = list(log.segments)
    ends = [one.base_offset for one in segments[1:]] + [log.log_end_offset]
    return [
        LocalSegment(one.base_offset, end, one.size_bytes)
        for one, end in zip(segments, ends, strict=True)
    ]
