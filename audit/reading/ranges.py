"""Ranges of files that tasks read separately, divided at snapshots and batch boundaries."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from audit.inputs.metadata_log import FileRange, MetadataLog, Segment
from audit.planning.intervals import Interval, plan_intervals
from audit.reading.segments import floor_position
from protocol.batch.header import HEADER_BYTES, LENGTH_MIN, LENGTH_OVERHEAD_BYTES

SPLIT_BYTES = 64 << 20
_frame = struct.Struct(">qi")


def plan_ranges(
    log: MetadataLog, *, snapshots: bool, split_bytes: int = SPLIT_BYTES
) -> list[FileRange]:
    """Return one range per interval and segment, or several of about `split_bytes` for large ones.

    `snapshots` adds the snapshot files, each as a range of its own.
    """
    ranges: list[FileRange] = []
    for interval in plan_intervals(log):
        for segment in interval.segments:
            ranges += _segment_ranges(log, interval, segment, split_bytes)
    if snapshots:
        ranges += [FileRange(log.name, log.node_id, s.path, s.end_offset) for s in log.snapshots]
    return ranges


def _segment_ranges(
    log: MetadataLog, interval: Interval, segment: Segment, split_bytes: int
) -> Iterator[FileRange]:
    first = interval.start_offset if interval.start_offset > segment.base_offset else None
    start = floor_position(segment, interval.start_offset)
    for begin, end in boundaries(segment, start, split_bytes):
        yield FileRange(
            log.name,
            log.node_id,
            segment.path,
            None,
            begin,
            end,
            first,
            interval.end_offset,
        )


def boundaries(segment: Segment, start: int, split_bytes: int) -> Iterator[tuple[int, int | None]]:
    """Yield ranges of about `split_bytes` from `start` on, divided at batch boundaries.

    Only lengths are read. If a length is invalid, the last range extends to the file's end, and its
    reader reports the damage.
    """
    begin = at = start
    with open(segment.path, "rb") as file:
        while segment.size_bytes - at > split_bytes or at > begin:
            file.seek(at)
            frame = file.read(_frame.size)
            if len(frame) < _frame.size or segment.size_bytes - at < HEADER_BYTES:
                break
            _, length = _frame.unpack(frame)
            if length < LENGTH_MIN:
                break
            at += length + LENGTH_OVERHEAD_BYTES
            if at - begin >= split_bytes and at < segment.size_bytes:
                yield begin, at
                begin = at
    yield begin, None
