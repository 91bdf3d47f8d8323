"""Values of tiered storage: a remote segment, a change of its state, the removal of a partition.

They represent the records of `__remote_log_metadata` in Kraftbox's own types. A segment is
immutable; a new state makes a new value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from protocol.ids import TopicId, uuid_to_text
from storage.log.epochs import EpochEntry
from storage.tiered.states import PartitionDeleteState, SegmentState

SegmentId: TypeAlias = bytes
"""16 bytes, drawn for each attempt to copy a segment."""


class RemotePartition(NamedTuple):
    """A partition of a topic id. The name is informational: only the id is unique over time."""

    topic_id: TopicId
    partition: int
    topic: str

    @property
    def identity(self) -> tuple[TopicId, int]:
        """The key that identifies a partition."""
        return self.topic_id, self.partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} ({uuid_to_text(self.topic_id)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSnapshot:
    """A segment as in Kafka's snapshots of the cache: without its partition, which the snapshot's
    file name contains.

    Kafka's serde supports it; no broker writes it to the topic. Raises ValueError for offsets and
    epochs that no segment can have.
    """

    segment_id: SegmentId
    start_offset: int
    end_offset: int
    """The last offset of the segment, not the one after it."""
    broker_id: int
    """The broker that wrote the segment's last metadata record."""
    max_timestamp_ms: int
    """The highest timestamp of its records; -1 if no record has one."""
    event_timestamp_ms: int
    """Time of its last metadata record, by the writer's wall clock."""
    epochs: tuple[EpochEntry, ...]
    """The leader epochs of its records and where in the segment each begins, ascending. Offsets
    before the first were below the log start when it was copied: their epochs are unknown."""
    size_bytes: int
    """Size of the log alone, without indexes."""
    state: SegmentState = SegmentState.COPY_STARTED
    custom_metadata: bytes | None = None
    """Data of the store that copied it; kept but not interpreted."""
    txn_index_empty: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            raise ValueError(f"a segment of offsets {self.start_offset}..{self.end_offset}")
        if not self.epochs:
            raise ValueError("a segment without a leader epoch")
        for earlier, later in zip(self.epochs, self.epochs[1:], strict=False):
            if earlier.epoch >= later.epoch or earlier.start_offset > later.start_offset:
                raise ValueError(f"epoch {later} after {earlier}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment(SegmentSnapshot):
    """A segment in the tier, as its metadata records describe it."""

    partition: RemotePartition

    def __str__(self) -> str:
        offsets = f"{self.start_offset}..{self.end_offset}"
        return f"{uuid_to_text(self.segment_id)} of {self.partition}, {offsets}, {self.state.name}"

    def epoch_ranges(self) -> Iterable[tuple[int, int, int]]:
        """Yield (epoch, first offset, last offset) for each epoch with records in this segment."""
        starts = [max(entry.start_offset, self.start_offset) for entry in self.epochs]
        ends = [start - 1 for start in starts[1:]] + [self.end_offset]
        for entry, start, end in zip(self.epochs, starts, ends, strict=True):
            if start <= end:
                yield entry.epoch, start, end

    def updated(self, update: SegmentUpdate) -> RemoteSegment:
        """Return the segment after a change of its state.

        Custom metadata stay unless the update contains some.
        """
        custom = update.custom_metadata
        # Field by field: `replace` takes twice as long, and a start replays hundreds of thousands.
        return RemoteSegment(
            partition=self.partition,
            segment_id=self.segment_id,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            broker_id=update.broker_id,
            max_timestamp_ms=self.max_timestamp_ms,
            event_timestamp_ms=update.event_timestamp_ms,
            epochs=self.epochs,
            size_bytes=self.size_bytes,
            state=update.state,
            custom_metadata=self.custom_metadata if custom is None else custom,
            txn_index_empty=self.txn_index_empty,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUpdate:
    """A later state of a segment."""

    partition: RemotePartition
    segment_id: SegmentId
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeletion:
    """Progress of the removal of a partition."""

    partition: RemotePartition
    broker_id: int
    event_timestamp_ms: int
    state: PartitionDeleteState


TierRecord: TypeAlias = RemoteSegment | SegmentUpdate | PartitionDeletion | SegmentSnapshot
