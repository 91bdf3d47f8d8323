"""Positions of a stream in a growing log, with a check that the log still has the records read.

A log grows only at its end. But a copy of it may also lose its end (a follower truncates
uncommitted records), restart from a snapshot, or lose old segments. A stream that continued would
repeat or skip records silently. So it stops with an error, and the user starts with a new
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

from audit.decoding.batches import Batch
from audit.inputs.metadata_log import FileRange, MetadataLog, Segment
from audit.reading.segments import walk


class ReadPosition(TypedDict):
    """The position up to which a stream has read, as stored in Spark's checkpoint.

    segment: base offset of the segment; position: in it, the end of a batch; next_offset: of the
    next record; last_position, last_crc: of the batch that ends here, -1 if none was read.
    """

    segment: int
    position: int
    next_offset: int
    last_position: int
    last_crc: int


class LogChanged(Exception):
    """The log no longer has the records that a stream has read, or the next ones."""


def end_of(log: MetadataLog, before: ReadPosition | None) -> ReadPosition:
    """Return the position after the last whole batch with a correct CRC. Raises LogChanged.

    An incomplete batch at the end is still being written. Damage before whole batches is skipped,
    and the reader yields rows about it.
    """
    position = _at(log.segments[-1])
    if before is not None:
        on = resume(log, before)
        if on["segment"] == position["segment"]:
            position = on
    for found in walk(log.segments[-1].path, position["position"]):
        if isinstance(found, Batch) and found.crc_ok:
            position = ReadPosition(
                segment=position["segment"],
                position=found.position + found.header.size_bytes,
                next_offset=found.header.next_offset,
                last_position=found.position,
                last_crc=found.header.crc,
            )
    return position


def resume(log: MetadataLog, position: ReadPosition) -> ReadPosition:
    """Return the position where reading continues after `position`. Raises LogChanged."""
    by_base = {segment.base_offset: segment for segment in log.segments}
    segment = by_base.get(position["segment"])
    if segment is not None:
        if position["last_position"] >= 0 and not _still_there(segment, position):
            raise LogChanged(
                f"{segment.path} no longer has the batch that ends at offset "
                f"{position['next_offset']}, up to which it was read: the log was truncated there, "
                "and written again"
            )
        return position
    following = by_base.get(position["next_offset"])
    if following is not None:
        return _at(following)
    first = min(by_base, default=0)
    if first > position["next_offset"]:
        raise LogChanged(
            f"{log.path} begins at offset {first} now, and was read up to "
            f"{position['next_offset']}: the records between are only in a snapshot"
        )
    raise LogChanged(
        f"{log.path} no longer has the segment {position['segment']:020d}.log, and was read up to "
        f"offset {position['next_offset']}: the log was truncated, and written again"
    )


def between(log: MetadataLog, start: ReadPosition | None, end: ReadPosition) -> Iterator[FileRange]:
    """Yield the parts of the files from `start` (None: the beginning) to `end`.

    Raises LogChanged.
    """
    resume(log, end)
    begin = _at(log.segments[0]) if start is None else resume(log, start)
    for segment in log.segments:
        if not begin["segment"] <= segment.base_offset <= end["segment"]:
            continue
        first = begin["position"] if segment.base_offset == begin["segment"] else 0
        stop = end["position"] if segment.base_offset == end["segment"] else None
        if stop is None or stop > first:
            yield FileRange(log.name, log.node_id, segment.path, None, first, stop)


def _at(segment: Segment) -> ReadPosition:
    """Return the position where a segment begins."""
    base = segment.base_offset
    return ReadPosition(segment=base, position=0, next_offset=base, last_position=-1, last_crc=-1)


def _still_there(segment: Segment, position: ReadPosition) -> bool:
    if segment.size_bytes < position["position"]:
        return False
    found: Any = next(walk(segment.path, position["last_position"], position["position"]), None)
    return (
        isinstance(found, Batch)
        and found.crc_ok
        and found.header.crc == position["last_crc"]
        and found.header.next_offset == position["next_offset"]
    )
