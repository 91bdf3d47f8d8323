"""Intervals: the parts of a log that can be audited apart from each other.

A snapshot is the whole state of the cluster. So the log from one snapshot to the next can be
replayed by itself, in any order and on any machine, and its result judged by the next snapshot. A
log with k snapshots gives k + 1 intervals. Where that is too few for the machines there are, an
interval is read by several shards, each of which replays a share of the partitions; reading is
cheap beside replaying.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from audit.inputs.metadata_log import MetadataLog, Segment, Snapshot, overlapping


class Interval(NamedTuple):
    """Offsets `start_offset` (inclusive) to `end_offset` (exclusive, None: the log's end).

    base: the snapshot it begins with, None for an empty cluster. milestones: the snapshots inside
    it, of any copy of the log; the replay must agree with each when it reaches that offset, and the
    last may be at the interval's end. knows_start: whether base (or offset 0) says all that was
    before.
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
    """The intervals of a log, in order, each with one shard. `others` are copies of it, whose
    snapshots are compared as well."""
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
    """The same intervals in at least `tasks` pieces where they are fewer.

    Long ones are cut first; the longest interval is what a cluster would wait for.
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
"""An interval below this is not worth reading twice."""


def _size_bytes(interval: Interval) -> int:
    return sum(segment.size_bytes for segment in interval.segments)
