"""State of a partition that this broker leads, as used by the tier's drivers."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from broker.tiering.counters import Backlog, TopicCounters
from storage.log.config import LogConfig
from storage.log.epochs import EpochCache
from storage.log.log import Log
from storage.log.segment import Segment
from storage.tiered.cache import Outcome, SegmentCache
from storage.tiered.copying import LocalSegment
from storage.tiered.lineage import Lineage
from storage.tiered.values import RemotePartition, SegmentId, TierRecord


class Replica(Protocol):
    """The members of `Partition` that drivers use."""

    @property
    def log(self) -> Log: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_leader(self) -> bool: ...


class TierMetadata(Protocol):
    """The members of `Journal` that drivers use."""

    def cache(self, partition: RemotePartition) -> SegmentCache | None:
        """Return the cache, or None until it is complete enough to act on."""

    def leaders_cache(self, partition: RemotePartition) -> SegmentCache | None:
        """Return the cache, or None until it is complete enough to act on as the leader."""

    def write(self, record: TierRecord) -> Awaitable[Outcome]:
        """Write a record and return its outcome once it was read back. Raises TierUnavailable if
        that fails; the record may be written nevertheless."""


class Led:
    """This broker's leadership of one partition in one epoch. Another epoch has another `Led`."""

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
        """True if the cache contains all records that earlier leaders wrote."""
        self.being_copied: set[SegmentId] = set()
        """Copies that this leader has begun and not abandoned: no other pass may delete them."""
        self.taken_back: set[SegmentId] = set()
        """Copies that this leader has abandoned and that are not deleted yet."""
        self.idle: dict[str, Seen] = {}
        """By kind of pass: the state in which it last found nothing to do."""
        self.idle_until_ms = 0.0
        """When time alone gives the expiry something to do."""

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def holds(self) -> bool:
        """True if this broker still leads in the same epoch, as far as it knows. Check it after
        every wait."""
        return self.replica.is_leader and self.replica.leader_epoch == self.epoch

    @property
    def lineage(self) -> Lineage:
        log = self.replica.log
        return Lineage(log.epochs.entries, log.log_end_offset)

    def known(self, metadata: TierMetadata) -> SegmentCache | None:
        """Return the partition's cache if it and the log are in a state to act on, otherwise
        None."""
        log = self.replica.log
        if not self.holds or log.failure is not None or log.closed or log.bounds.bootstrapping:
            return None
        if log.history.lacks_remote_part:
            return None  # the log's lineage is unknown
        cache = metadata.leaders_cache(self.partition)
        return cache if cache is not None and cache.deletion is None else None


class Seen(NamedTuple):
    """The inputs of a pass, except the time: while they are the same there is nothing new to
    decide.

    Few of thousands of partitions have changed since their last pass. Computing the lineage of a
    log with all its copies takes a hundred times as long as comparing these inputs.
    """

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
    """Number of local segments, base offset of the last, and total bytes."""
    being_copied: frozenset[SegmentId]


def seen_by(
    log: Log, cache: SegmentCache, being_copied: Collection[SegmentId] = frozenset()
) -> Seen:
    """Return the present inputs of a pass, see `Seen`."""
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
    """Return all segments of the log, including the active one."""
    segments = list(log.segments)
    active = segments[-1]
    end = LocalSegment(active.base_offset, log.log_end_offset, active.size_bytes)
    return [*ClosedSegments(segments), end]


class ClosedSegments:
    """All of a log's segments but the last, the active one; a value is made when it is read."""

    __slots__ = ("_segments",)

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments

    def __iter__(self) -> Iterator[LocalSegment]:
        for one, following in pairwise(self._segments):
            yield LocalSegment(one.base_offset, following.base_offset, one.size_bytes)
