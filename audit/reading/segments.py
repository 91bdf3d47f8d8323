"""Segment and snapshot files: their batches, and the positions of offsets in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit.decoding.batches import Batch, Damage, batches_in
from audit.inputs.metadata_log import LogEnd, MetadataLog, Segment
from protocol.batch.header import HEADER_BYTES, crc_ok, parse_header

WINDOW_BYTES = 16 << 20
_INDEX_ENTRY_BYTES = 8


def walk(
    path: str, start: int = 0, end: int | None = None, window_bytes: int = WINDOW_BYTES
) -> Iterator[Batch | Damage]:
    """Yield the batches of a file between two positions; the first must be the start of a batch."""
    with open(path, "rb") as file:
        file.seek(start)
        left = float("inf") if end is None else end - start
        data, base = b"", start
        while True:
            more = file.read(int(min(window_bytes, left)))
            left -= len(more)
            data += more
            used = 0
            for found in batches_in(data, base, last=not more):
                used = found.position - base + found.size_bytes
                yield found
            if not more:
                return
            data, base = data[used:], base + used


def floor_position(segment: Segment, offset: int) -> int:
    """Return a position at or before the batch of `offset`.

    It is from the segment's index, if the batch there is whole and not beyond the offset; else 0.
    """
    index = Path(segment.path).with_suffix(".index")
    if offset <= segment.base_offset or not index.is_file():
        return 0
    data = index.read_bytes()
    best = 0
    for at in range(0, len(data) - _INDEX_ENTRY_BYTES + 1, _INDEX_ENTRY_BYTES):
        relative = int.from_bytes(data[at : at + 4], "big")
        if segment.base_offset + relative >= offset or (at and not relative):
            break
        best = int.from_bytes(data[at + 4 : at + 8], "big")
    return best if best and _is_batch(segment.path, best, offset) else 0


def _is_batch(path: str, position: int, below: int) -> bool:
    with open(path, "rb") as file:
        file.seek(position)
        head = file.read(HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return False
        header = parse_header(head)
        if header.base_offset >= below or not HEADER_BYTES <= header.size_bytes < 1 << 30:
            return False
        data = head + file.read(header.size_bytes - HEADER_BYTES)
    return len(data) == header.size_bytes and crc_ok(data, 0, len(data))


def log_end(log: MetadataLog) -> LogEnd:
    """Return the end of a copy's last whole batch, or of its newest snapshot without one."""
    newest = max(log.snapshots, key=lambda s: s.end_offset, default=None)
    end = LogEnd(newest.end_offset, newest.epoch) if newest else LogEnd(0, -1)
    for segment in reversed(log.segments):
        for found in walk(segment.path):
            if isinstance(found, Batch) and found.crc_ok:
                header = found.header
                end = max(end, LogEnd(header.next_offset, header.leader_epoch))
        if end.end_offset > segment.base_offset:
            break
    return end
