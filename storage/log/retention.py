"""Selection of segments that are past retention, by size, time and offset.

Only a prefix of the segments can be removed, and only segments entirely below the high watermark.
The rules apply in Kafka's order, each to what the previous one left: time, size, log start.

If a log is copied to a remote store, time and size remove only segments with a finished copy there
(KIP-405, S2, S9). Segments below the log start are removed whether copied or not. Only closed
segments are copied. So once time or size would remove the last segment, and no older one is left,
it is closed. Otherwise the newest records of an idle partition would stay on the disk indefinitely
and never expire.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from storage.log.config import UNLIMITED, LogConfig
from storage.log.segment import Segment


def expired(
    segments: Sequence[Segment],
    config: LogConfig,
    now_ms: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    copied_to: int,
) -> int:
    """Return how many of the oldest segments may be removed; never an empty last segment.

    Args:
        copied_to: first offset without a finished copy on this replica's lineage; used only if the
        log is copied.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    deletable = 0
    for segment, end in zip(segments, ends, strict=True):
        last = segment is segments[-1]
        if end > high_watermark or (last and segment.size_bytes == 0):
            break
        deletable += 1
    count = 0
    if config.deletes:
        spare = bisect_right(ends, copied_to, 0, deletable) if config.copies else deletable
        count = _by_time(segments[:spare], config, now_ms)
        count = _by_size(segments, count, spare, config)
    while count < deletable and ends[count] <= log_start_offset and count + 1 < len(segments):
        count += 1
    return count


def closes_last(
    segments: Sequence[Segment],
    config: LogConfig,
    now_ms: int,
    *,
    log_end_offset: int,
    high_watermark: int,
) -> bool:
    """Return whether the only segment of a copied log is past local retention, so that it must be
    closed (as in Kafka 4.3)."""
    if len(segments) > 1 or not segments[0].size_bytes or high_watermark < log_end_offset:
        return False
    if not (config.copies and config.deletes):
        return False
    return _by_size(segments, _by_time(segments, config, now_ms), 1, config) == 1


def _by_time(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> int:
    limit_ms = config.effective_local_retention_ms if config.copies else config.retention_ms
    if limit_ms < 0:
        return 0
    count = 0
    for at, segment in enumerate(segments):
        if segment.size_bytes == 0:
            continue  # compaction emptied this segment: it is removed with the next one
        if now_ms - segment.largest_timestamp_ms() <= limit_ms:
            break
        count = at + 1
    return count


def _by_size(segments: Sequence[Segment], count: int, deletable: int, config: LogConfig) -> int:
    limit_bytes = (
        config.effective_local_retention_bytes if config.copies else config.retention_bytes
    )
    if limit_bytes <= UNLIMITED:
        return count
    excess = sum(segment.size_bytes for segment in segments[count:]) - limit_bytes
    while count < deletable and excess >= segments[count].size_bytes:
        excess -= segments[count].size_bytes
        count += 1
    return count
