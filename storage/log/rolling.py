"""Rules for rolling the active segment."""

from __future__ import annotations

from storage.log.config import LogConfig
from storage.log.segment import Segment


def must_roll(
    segment: Segment,
    config: LogConfig,
    jitter_ms: int,
    size_bytes: int,
    max_timestamp: int,
    last_offset: int,
    now_ms: int,
) -> bool:
    """Return whether batches of this size, timestamp and last offset need a new segment."""
    held = segment.size_bytes
    if held and held + size_bytes > config.segment_bytes:
        return True
    if not segment.fits_relative(last_offset) or segment.index_full:
        return True
    if not held:
        return False
    return waited_ms(segment, max_timestamp, now_ms) > config.effective_segment_ms - jitter_ms


def waited_ms(segment: Segment, max_timestamp: int, now_ms: int) -> int:
    """Return the age of a segment, by record timestamps if it has any (KIP-32)."""
    first = segment.first_timestamp_ms()
    if first >= 0:
        return max_timestamp - first if max_timestamp >= 0 else now_ms - first
    return now_ms - segment.created_ms
