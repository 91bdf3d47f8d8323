"""Local segments that may go because the tier has them (S2): a decision of any replica.

`local.retention.*` says how much stays on the disk; -2, which follows `retention.*`, is resolved by
`LogConfig`. Beyond that a segment goes only when finished copies on this replica's own lineage have
all of it, or when it lies below the log start. With a cache that is not ready nothing counts as
copied, so while the store or its metadata are down nothing goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.tiered.cache import SegmentCache
from storage.tiered.copying import LocalSegment
from storage.tiered.expiry import Retention
from storage.tiered.lineage import Lineage


def local_deletable(
    cache: SegmentCache | None,
    lineage: Lineage,
    closed: Sequence[LocalSegment],
    retention: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    active_bytes: int,
) -> int:
    """How many of the oldest segments may be removed from the disk.

    Args:
        closed: the replica's segments but the last, by offset.
        retention: the effective local one.
        now_ms: time by a clock that does not jump (`SteadyTime`).
        active_bytes: of the last segment.
    """
    excess = active_bytes + sum(segment.size_bytes for segment in closed) - retention.bytes
    for count, segment in enumerate(closed):
        if segment.next_offset > high_watermark:
            return count
        if segment.next_offset > log_start_offset:
            too_old = retention.ms >= 0 and now_ms - segment.largest_timestamp_ms > retention.ms
            too_large = retention.bytes >= 0 and excess >= segment.size_bytes
            if not too_old and not too_large:
                return count
            first = max(segment.base_offset, log_start_offset)
            if cache is None or not cache.covers(lineage, first, segment.next_offset - 1):
                return count
        excess -= segment.size_bytes
    return len(closed)
