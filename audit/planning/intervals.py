"""Intervals: the parts of a log that can be audited separately.

A snapshot is the whole state of the cluster. So the log between two snapshots can be replayed
alone, in any order and on any machine, and its result is compared with the next snapshot. A log
with k snapshots has k + 1 intervals. If these are too few for the available machines, several
shards read an interval, and each replays a share of the partitions. Reading is cheap compared with
replaying.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from audit.inputs.metadata_log import MetadataLog, Segment, Snapshot, overlapping


class Interval(NamedTuple):
    """Offsets `start_offset` (inclusive) to `end_offset` (exclusive, None: the log's end).

    base: the snapshot it begins with, None for an empty cluster. milestones: the snapshots in it,
    of any copy of the log; the replay must agree with each at its offset. The last one may be at
    the end of the interval. knows_start: base (or offset 0) covers everything before.
    """

    number: int
    log: str
    start_offset: int
    end_offset: int | None
    base: Snapshot | None
    milestones: tuple[Snapshot, ...]
    segments: tuple[Segment, ...]
    knows_start: bool
    shard: int = 0
    shards: int = 1

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.end_offset is None


def plan_intervals(log: MetadataLog, others: Sequence[MetadataLog] = ()) -> list[Interval]:
    """Return the intervals of a log in order, each with one shard.

    `others` are copies of the log, whose snapshots are compared, too.
    """
    start = log.segments[0].base_offset if log.segments else log.snapshots[-1].end_offset
    older = [s for s in log.snapshots if s.end_offset <= start]
    base = older[-1] if older else None
    cuts: list[Snapshot | None] = [s for s in log.snapshots if s.end_offset > start]
    every = sorted(s for copy in (log, *others) for s in copy.snapshots)
    planned = []
    for number, following in enumerate([*cuts, None]):
        end = None if following is None else following.end_offset
        planned.append(
            Interval(
                number=number,
                log=log.name,
                start_offset=start,
                end_offset=end,
                base=base,
                milestones=tuple(
                    sorted(
                        (s for s in every if start < s.end_offset and not _beyond(s, end)),
                        key=lambda s: s.end_offset,
                    )
                ),
                segments=overlapping(log.segments, start, end),
                knows_start=start == 0 or (base is not None and base.end_offset == start),
            )
        )
        if following is not None:
            start, base = following.end_offset, following
    return planned


def _beyond(snapshot: Snapshot, end: int | None) -> bool:
    return end is not None and snapshot.end_offset > end


def with_shards(intervals: Sequence[Interval], tasks: int) -> list[Interval]:
    """Return the intervals in at least `tasks` pieces if they are fewer.

    The longest ones are divided first, because a cluster would wait for them.
    """
    total = sum(_size_bytes(i) for i in intervals) or 1
    planned = []
    for interval in intervals:
        share = _size_bytes(interval) * tasks / total
        shards = max(1, min(tasks, round(share))) if len(intervals) < tasks else 1
        if shards * SHARD_BYTES_MIN > _size_bytes(interval):
            shards = 1
        planned += [interval._replace(shard=n, shards=shards) for n in range(shards)]
    return planned


SHARD_BYTES_MIN = 4 << 20
"""A smaller interval is not worth reading twice."""


def _size_bytes(interval: Interval) -> int:
    return sum(segment.size_bytes for segment in interval.segments)
