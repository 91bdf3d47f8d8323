"""Batches in the bytes of a segment or snapshot file, which may be damaged.

A walk never raises because of the bytes. A batch with a wrong CRC is yielded and marked. Bytes that
are not a batch are yielded as `Damage`, and the walk continues at the next batch with a correct
CRC. A batch that is cut off by the end of the file is Damage at the tail. Zeros up to the end of
the file are space that Kafka preallocated, and not damage.

`split` reads the records of a batch in one loop without an object per record, because all records
of the audit go through it. It leaves unusual batches to `protocol.batch.records`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from protocol.batch.header import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_MIN,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    crc_ok,
    parse_header,
)
from protocol.batch.records import read_batch, read_varint, read_varlong

BATCH_BYTES_MAX = 1 << 30
"""A larger length counts as damage; metadata batches have at most 8 MiB."""
_NULL_KEY = 1
"""The varint of -1, with which a record without a key begins its key."""


class DamageKind(StrEnum):
    GARBAGE = "garbage"
    CUT = "cut"


class BatchIdentity(NamedTuple):
    """The identity of a batch, on which copies must agree."""

    next_offset: int
    epoch: int
    crc: int


class Batch(NamedTuple):
    """One batch in place: its bytes are `data[at : at + header.size_bytes]`."""

    header: BatchHeader
    data: bytes
    at: int
    position: int
    crc_ok: bool

    @property
    def size_bytes(self) -> int:
        return self.header.size_bytes

    @property
    def identity(self) -> BatchIdentity:
        return BatchIdentity(self.header.next_offset, self.header.leader_epoch, self.header.crc)


class Damage(NamedTuple):
    """Bytes of a file, from `position` on, that are not a whole batch."""

    kind: DamageKind
    position: int
    size_bytes: int


Row: TypeAlias = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp in epoch ms, key, value."""


def batches_in(data: bytes, base: int, *, last: bool) -> Iterator[Batch | Damage]:
    """Yield the batches of a window, which begins with a batch at position `base` of its file.

    Bytes at its end that are not a whole batch are left to the next window, unless it is the last.
    """
    at, size = 0, len(data)
    while at < size:
        if size - at < HEADER_BYTES:
            break
        header = parse_header(data, at)
        if not _frame_ok(header):
            following = _resync(data, at + 1)
            if following is None and not last and size - at < BATCH_BYTES_MAX:
                return
            stop = size if following is None else following
            if any(data[at:stop]):
                yield Damage(DamageKind.GARBAGE, base + at, stop - at)
            elif following is None:
                return
            at = stop
            continue
        length = header.size_bytes
        if at + length > size:
            if not last:
                return
            following = _resync(data, at + 1)
            stop = size if following is None else following
            kind = DamageKind.CUT if following is None else DamageKind.GARBAGE
            yield Damage(kind, base + at, stop - at)
            at = stop
            continue
        yield Batch(header, data, at, base + at, crc_ok(data, at, length))
        at += length
    if last and at < size and any(data[at:]):
        yield Damage(DamageKind.CUT, base + at, size - at)


def _frame_ok(header: BatchHeader) -> bool:
    return header.magic == MAGIC and LENGTH_MIN <= header.batch_length <= BATCH_BYTES_MAX


def _resync(data: bytes, at: int) -> int | None:
    """Return the next position from `at` on at which a whole batch with a correct CRC begins."""
    size = len(data)
    found = data.find(bytes([MAGIC]), at + MAGIC_POSITION)
    while found >= 0:
        begin = found - MAGIC_POSITION
        if size - begin < HEADER_BYTES:
            return None
        length = int.from_bytes(data[begin + 8 : begin + 12], "big")
        whole = length + LENGTH_OVERHEAD_BYTES
        if length >= LENGTH_MIN and begin + whole <= size and crc_ok(data, begin, whole):
            return begin
        found = data.find(bytes([MAGIC]), found + 1)
    return None


def split(batch: Batch) -> list[Row]:
    """Return the records of a batch. Raises ProtocolError or ApiError if they cannot be decoded."""
    header = batch.header
    if header.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT):
        return _split_slowly(batch)
    begin = batch.at + HEADER_BYTES
    data = batch.data[begin : batch.at + header.size_bytes]
    try:
        return _split(data, header)
    except (ValueError, IndexError):
        return _split_slowly(batch)


def _split(data: bytes, header: BatchHeader) -> list[Row]:
    rows: list[Row] = []
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    pos = 0
    for _ in range(header.record_count):
        byte = data[pos]
        if byte < 128:
            end = pos + 1 + (byte >> 1)
            pos += 2
        else:
            size, pos = read_varint(data, pos)
            end = pos + size
            pos += 1
        timestamp = base_timestamp
        if data[pos]:
            delta, pos = read_varlong(data, pos)
            timestamp += delta
        else:
            pos += 1
        byte = data[pos]
        if byte < 128:
            offset = base_offset + (byte >> 1)
            pos += 1
        else:
            delta, pos = read_varint(data, pos)
            offset = base_offset + delta
        key = None
        if data[pos] == _NULL_KEY:
            pos += 1
        else:
            size, pos = read_varint(data, pos)
            key = data[pos : pos + size]
            pos += size
        size, pos = read_varint(data, pos)
        following = pos + size
        if size < 0 or following + 1 != end or data[following]:
            raise ValueError("a null value, headers, or lengths that do not agree")
        rows.append((offset, timestamp, key, data[pos:following]))
        pos = end
    if pos != len(data):
        raise ValueError("bytes after the last record")
    return rows


def _split_slowly(batch: Batch) -> list[Row]:
    records = read_batch(batch.data, batch.at, batch.header)
    return [(r.offset, r.timestamp, r.key, r.value) for r in records]
