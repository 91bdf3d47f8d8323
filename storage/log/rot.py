"""Detection of rot: former batches damaged at rest, as opposed to a torn write.

A write that a power cut interrupts ends early, or lacks whole pages, which are then zeros. A
complete batch with a wrong checksum, or invalid bytes followed by whole batches, were valid once:
the disk has not preserved them. They may have been flushed and acknowledged.
"""

from __future__ import annotations

from protocol.batch.header import (
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    MAGIC_POSITION,
    Buffer,
    crc_ok,
    parse_header,
)

PAGE_BYTES = 512
"""The smallest unit that a disk writes."""
_MAGIC_BYTE = bytes([MAGIC])
_ZEROS_AT_END = 8
"""A tail of this many zeros is a torn write: the file grew, but its data did not arrive."""


def has_rotted(data: bytes, next_offset: int) -> bool:
    """Return whether `data`, the rest of a file from its first invalid bytes on, has rotted.

    No batch in it begins below `next_offset`.
    """
    whole_at = _whole_batch_at(data, next_offset)
    broken = data[:whole_at]
    if bytes(PAGE_BYTES) in broken:
        return False
    return whole_at < len(data) or (_is_all_there(data) and not data.endswith(bytes(_ZEROS_AT_END)))


def _is_all_there(data: bytes) -> bool:
    """Return whether the first batch is complete by its own length field."""
    if len(data) < HEADER_BYTES:
        return False
    header = parse_header(data)
    framed = header.magic == MAGIC and header.batch_length >= LENGTH_MIN
    return framed and header.size_bytes <= len(data)


def _whole_batch_at(data: Buffer, next_offset: int) -> int:
    """Return the position of the first valid batch after the beginning; len(data) if none.

    A damaged field may be a length, so each possible start of a batch is tried.
    """
    data = bytes(data)
    at = data.find(_MAGIC_BYTE, MAGIC_POSITION + 1)
    while at >= 0:
        begin = at - MAGIC_POSITION
        if len(data) - begin < HEADER_BYTES:
            break
        header = parse_header(data, begin)
        size = header.size_bytes
        if (
            header.batch_length >= LENGTH_MIN
            and begin + size <= len(data)
            and header.base_offset >= next_offset
            and header.last_offset_delta >= 0
            and crc_ok(data, begin, size)
        ):
            return begin
        at = data.find(_MAGIC_BYTE, at + 1)
    return len(data)
