"""Planning rules of the cleaner, over segments, offsets and timestamps.

A log has a clean part, up to the checkpoint of the last round, a dirty part after it, and a part
that may not be cleaned yet. A log is due in two cases: its dirty bytes exceed
`min.cleanable.dirty.ratio` of all bytes that a round would read, or a dirty segment is older than
`max.compaction.lag.ms` (KIP-354). The dirtiest log that is due is cleaned first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from storage.log.config import LogConfig

MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class DatedSegment(Protocol):
    """Segment properties that the rules use; reading the timestamps may access the disk."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp_ms(self) -> int: ...

    def first_timestamp_ms(self) -> int: ...


class MeasuredSegment(Protocol):
    """Segment properties that grouping uses."""

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
    """The dirty part of a log that may be cleaned. Its end is a segment boundary."""

    first_dirty: int
    end: int


class Weight(NamedTuple):
    """Urgency of cleaning a log."""

    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """Milliseconds by which `max.compaction.lag.ms` is exceeded; 0 if it is not."""

    @property
    def ratio(self) -> float:
        """Dirty bytes as a share of all bytes that a round would read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        return self.cleanable_bytes > 0 and (self.delay_ms > 0 or self.ratio > min_ratio)


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Return the start of the dirty part; a checkpoint outside the log is ignored."""
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
    """Return the range that may be cleaned, in whole segments.

    Args:
        segments: all of the log; the last one is still written and is never cleaned.
        limit: the last stable offset. Records above it are not cleaned: they may still be
        truncated, or belong to an open transaction (KAFKA-13194).
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
    """Weigh a log by whole segments; one that is dirty from its middle on counts as clean and
    dirty."""
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
    """Return the end of each closed segment: the start of the next one."""
    return [segment.base_offset for segment in segments[1:]]


def grouped(
    segments: Sequence[Measured], end_offset: int, *, segment_bytes: int, index_bytes: int
) -> list[list[Measured]]:
    """Group neighbours whose remains certainly fit into one segment, and their offsets into its
    index.

    `end_offset` is the end of the last segment.
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
            # An empty segment has no offset that could be out of range.
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
