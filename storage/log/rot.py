"""Rot: bytes that were a batch once, told from what an interrupted write leaves.

A write that a power cut interrupts ends early, or lacks whole pages, which are zeros then. What is
all there and does not fit its checksum, and what whole batches follow, was right once: a disk has
not kept it. It had been flushed, perhaps, and others may have been told so.
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
"""The least that a disk writes at once."""
_MAGIC_BYTE = bytes([MAGIC])
_ZEROS_AT_END = 8
"""The end of a file grew, and what was to stand there did not come."""


def has_rotted(data: bytes, next_offset: int) -> bool:
    """Whether `data`, what a file has from the first bytes on that are no valid batch, has gone
    wrong where it lay. No batch in it begins below `next_offset`."""
    whole_at = _whole_batch_at(data, next_offset)
    broken = data[:whole_at]
    if bytes(PAGE_BYTES) in broken:
        return False
    return whole_at < len(data) or (_is_all_there(data) and not data.endswith(bytes(_ZEROS_AT_END)))


def _is_all_there(data: bytes) -> bool:
    """Whether the first batch is as long as it says."""
    if len(data) < HEADER_BYTES:
        return False
    header = parse_header(data)
    framed = header.magic == MAGIC and header.batch_length >= LENGTH_MIN
    return framed and header.size_bytes <= len(data)


def _whole_batch_at(data: Buffer, next_offset: int) -> int:
    """Where the first valid batch after the beginning is; the length of `data` if there is none.

    What is broken may be a length, so each place where one could begin is tried.
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
