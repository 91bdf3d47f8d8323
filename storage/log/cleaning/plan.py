"""Plans of the cleaner: decisions over segments, offsets and times.

A log has a clean part, up to the checkpoint of the last round, a dirty part behind it, and a part
that may not be cleaned yet. A log is due when its dirty bytes are more than
`min.cleanable.dirty.ratio` of all that a round would read, or when a dirty segment is older than
`max.compaction.lag.ms` (KIP-354). Of the logs that are due the dirtiest is cleaned first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from storage.log.config import LogConfig

MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class DatedSegment(Protocol):
    """What a decision asks of a segment; the times may cost a look at the disk."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp_ms(self) -> int: ...

    def first_timestamp_ms(self) -> int: ...


class MeasuredSegment(Protocol):
    """What grouping asks of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def index_bytes(self) -> int: ...

    @property
    def time_index_bytes(self) -> int: ...


Measured = TypeVar("Measured", bound=MeasuredSegment)


class DirtyRange(NamedTuple):
    """The dirty part of a log that may be cleaned. Its end is where a segment begins."""

    first_dirty: int
    end: int


class Weight(NamedTuple):
    """How urgent a log is."""

    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """How far `max.compaction.lag.ms` is exceeded; 0: it is not."""

    @property
    def ratio(self) -> float:
        """Dirty bytes of all bytes that a round would read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        return self.cleanable_bytes > 0 and (self.delay_ms > 0 or self.ratio > min_ratio)


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Where the dirty part begins; a checkpoint that cannot be of this log counts for nothing."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def dirty_range(
    segments: Sequence[DatedSegment],
    config: LogConfig,
    now_ms: int,
    *,
    first_dirty: int,
    limit: int,
) -> DirtyRange:
    """What may be cleaned, whole segments only.

    Args:
        segments: all of the log; the last one is being written and is never cleaned.
        limit: the last stable offset: nothing is cleaned that may still be cut off, or that
            belongs to an open transaction (KAFKA-13194).
    """
    closed = segments[:-1]
    end = segments[0].base_offset
    newest_ms = now_ms - config.min_compaction_lag_ms
    for segment, segment_end in zip(closed, _ends(segments), strict=True):
        if segment_end > limit:
            break
        if (
            config.min_compaction_lag_ms > 0
            and segment_end > first_dirty
            and segment.largest_timestamp_ms() > newest_ms
        ):
            break
        end = segment_end
    return DirtyRange(first_dirty, max(first_dirty, end))


def weigh(
    segments: Sequence[DatedSegment], config: LogConfig, now_ms: int, dirty: DirtyRange
) -> Weight:
    """Sizes are of whole segments; one that is dirty from its middle on counts on both sides."""
    clean = cleanable = 0
    oldest_ms: int | None = None
    lag_ms = config.max_compaction_lag_ms
    oldest_allowed_ms = now_ms - lag_ms
    for segment, end in zip(segments[:-1], _ends(segments), strict=True):
        if segment.base_offset < dirty.first_dirty:
            clean += segment.size_bytes
        if end <= dirty.first_dirty:
            continue
        if segment.base_offset < dirty.end:
            cleanable += segment.size_bytes
        if oldest_allowed_ms > 0:
            first_ms = segment.first_timestamp_ms()
            if first_ms > 0 and (oldest_ms is None or first_ms < oldest_ms):
                oldest_ms = first_ms
    delay_ms = 0 if oldest_ms is None else max(0, oldest_allowed_ms - oldest_ms)
    return Weight(clean, cleanable, delay_ms)


def _ends(segments: Sequence[DatedSegment]) -> list[int]:
    """Where each closed segment ends: where the next one begins."""
    return [segment.base_offset for segment in segments[1:]]


def grouped(
    segments: Sequence[Measured], end_offset: int, *, segment_bytes: int, index_bytes: int
) -> list[list[Measured]]:
    """Neighbours whose remains are sure to fit into one segment, and their offsets into its index.

    `end_offset` is where the last of them ends.
    """
    groups: list[list[Measured]] = []
    log_size = index_size = time_size = 0
    for at, segment in enumerate(segments, 1):
        end = segments[at].base_offset if at < len(segments) else end_offset
        log_size += segment.size_bytes
        index_size += segment.index_bytes
        time_size += segment.time_index_bytes
        fits = (
            log_size <= segment_bytes
            and index_size <= index_bytes
            and time_size <= index_bytes
            and groups
            # An empty segment has no offset that could be out of reach.
            and (
                not segment.size_bytes or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_size = segment.size_bytes
            index_size, time_size = segment.index_bytes, segment.time_index_bytes
    return groups
