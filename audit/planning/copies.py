"""Copies of one metadata log: selection of the one to audit, and the comparison with the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from audit.inputs.metadata_log import LogEnd, MetadataLog, Segment, overlapping


def choose_primary(logs: Sequence[MetadataLog], ends: dict[str, LogEnd]) -> MetadataLog:
    """Return the copy to audit: that of the newest leader, compared as in quorum elections.

    Among equals it is the one with the lowest start offset.
    """

    def rank(log: MetadataLog) -> tuple[int, int, int]:
        end = ends[log.name]
        return end.epoch, end.end_offset, -log.start_offset

    return max(sorted(logs, key=lambda log: log.path, reverse=True), key=rank)


class Copy(NamedTuple):
    """The segments of one copy with the offsets of a comparison.

    `last_path` is the last segment of the whole copy: only there an append may have been in
    progress.
    """

    log: str
    segments: tuple[Segment, ...]
    is_primary: bool
    last_path: str | None


class Comparison(NamedTuple):
    """Offsets `start_offset` to `end_offset` (None: to the end) of all copies, primary first."""

    start_offset: int
    end_offset: int | None
    copies: tuple[Copy, ...]


def plan_comparisons(primary: MetadataLog, others: Sequence[MetadataLog]) -> list[Comparison]:
    """Return one comparison per segment of the primary."""
    if not others or not primary.segments:
        return []
    starts = [segment.base_offset for segment in primary.segments]
    ends: list[int | None] = [*starts[1:], None]
    lowest = min((log.segments[0].base_offset for log in others if log.segments), default=0)
    if lowest < starts[0]:
        starts, ends = [lowest, *starts], [starts[0], *ends]
    return [
        Comparison(
            start,
            end,
            tuple(
                Copy(
                    log.name,
                    overlapping(log.segments, start, end),
                    log is primary,
                    log.segments[-1].path if log.segments else None,
                )
                for log in (primary, *others)
            ),
        )
        for start, end in zip(starts, ends, strict=True)
    ]
