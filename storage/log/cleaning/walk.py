"""The two passes over a batch's records: collecting keys, and selecting records to keep.

Ten million records are walked twice, so `walk` dominates the cost of cleaning. Unused fields are
skipped unread, short varints are decoded inline, and the further work per record is one
comprehension. Records that stay are examined again one by one: either there are few of them, or the
batch stays as it is.

Lengths are checked against the available bytes, since these records may never have been walked
before: the topic may have become compacted only later. Invalid records raise ValueError.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.batch.header import NO_TIMESTAMP, BatchHeader, TimestampType
from protocol.batch.records import read_varint, read_varlong, wrapped
from storage.log.cleaning.key_offsets import KEY_BYTES_MAX, KeyId, KeyOffsets, long_key

VARLONG_BYTES_MAX: Final = 10

_ZIGZAG = tuple((n >> 1) ^ -(n & 1) for n in range(1 << 14))


class Walked(NamedTuple):
    """The records of a batch, in parallel lists."""

    starts: list[int]
    """Start of each record; the last entry is the end of the last record."""
    keys: list[KeyId]
    offsets: list[int]


class Judged(NamedTuple):
    """The records of a batch that stay."""

    runs: list[tuple[int, int]]
    """Their bytes: (start, end) in the payload, with neighbours joined."""
    offsets: list[int]
    tombstones: bool
    """True if one of them has no value."""
    max_timestamp: int


def walk(data: bytes, header: BatchHeader) -> Walked:
    """Locate the records of a batch, which must fill `data` exactly. Raises ValueError."""
    try:
        walked = _walk(data, header.record_count, header.base_offset)
    except IndexError:
        raise ValueError("records are cut short") from None
    if walked.starts[-1] != len(data):
        raise ValueError(f"records end at {walked.starts[-1]} of {len(data)} bytes")
    return walked


def _walk(data: bytes, count: int, base_offset: int) -> Walked:
    starts, keys, offsets = [0], list[KeyId](), list[int]()
    zigzag = _ZIGZAG
    for _ in range(count):
        pos = starts[-1]
        byte = data[pos]
        if byte < 128:
            end = pos + 1 + zigzag[byte]
            pos += 2
        elif data[pos + 1] < 128:
            end = pos + 2 + zigzag[byte & 127 | data[pos + 1] << 7]
            pos += 3
        else:
            size, pos = read_varint(data, pos)
            end = pos + size
            pos += 1
        pos = pos + 1 if data[pos] < 128 else _after_varlong(data, pos)
        byte = data[pos]
        if byte < 128:
            offsets.append(base_offset + zigzag[byte])
            pos += 1
        elif data[pos + 1] < 128:
            offsets.append(base_offset + zigzag[byte & 127 | data[pos + 1] << 7])
            pos += 2
        else:
            delta, pos = read_varint(data, pos)
            offsets.append(base_offset + delta)
        length = data[pos]
        if length < 128 and not length & 1:
            pos += 1
            value_at = pos + (length >> 1)
            keys.append(data[pos:value_at])
        else:
            key, value_at = _unusual_key(data, pos)
            keys.append(key)
        if value_at >= end:
            raise ValueError("a key that is longer than its record")
        starts.append(end)
    return Walked(starts, keys, offsets)


def _unusual_key(data: bytes, pos: int) -> tuple[KeyId, int]:
    """Return a long or missing key, and the position after it."""
    length, pos = read_varint(data, pos)
    if length < 0:
        if length != -1:
            raise ValueError(f"a key of {length} bytes")
        return None, pos
    key = data[pos : pos + length]
    return key if length <= KEY_BYTES_MAX else long_key(key), pos + length


def _after_varlong(data: bytes, pos: int) -> int:
    """Return the position after an unused number of up to 64 bits."""
    for at in range(pos, pos + VARLONG_BYTES_MAX):
        if data[at] < 128:
            return at + 1
    raise ValueError("a varint longer than 64 bits")


def collect_keys(data: bytes, header: BatchHeader, into: KeyOffsets, first_offset: int) -> None:
    """Add key and offset of every record with a key, from `first_offset` on. Raises ValueError."""
    _, keys, offsets = walk(data, header)
    pairs = zip(keys, offsets, strict=True)
    if header.base_offset >= first_offset:
        into.update(pairs)
    else:
        into.update((key, offset) for key, offset in pairs if offset >= first_offset)


def judge(data: bytes, header: BatchHeader, newest: KeyOffsets, *, keep_tombstones: bool) -> Judged:
    """Select the records that stay.

    A record stays if no newer one has its key, unless it is a tombstone and tombstones may be
    removed. Records above the map's range stay; a record without a key does not. Raises ValueError.
    """
    starts, keys, offsets = walk(data, header)
    latest, newest_of = newest.latest_offset, newest.offsets.get
    stay = [
        at
        for at, (key, offset) in enumerate(zip(keys, offsets, strict=True))
        if newest_of(key, -1) <= offset or offset > latest
    ]
    tombstones = {at for at in stay if _has_no_value(data, starts[at])}
    if tombstones and not keep_tombstones:
        stay = [at for at in stay if at not in tombstones or offsets[at] > latest]
        tombstones.intersection_update(stay)
    return Judged(
        _joined([(starts[at], starts[at + 1]) for at in stay]),
        [offsets[at] for at in stay],
        bool(tombstones),
        _max_timestamp(data, header, [starts[at] for at in stay]),
    )


def _has_no_value(data: bytes, start: int) -> bool:
    """Return whether the record at `start` is a tombstone."""
    _, pos = read_varint(data, start)
    pos = _after_varlong(data, pos + 1)
    _, pos = read_varint(data, pos)
    length, pos = read_varint(data, pos)
    return read_varint(data, pos + max(0, length))[0] < 0


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pieces with neighbours joined."""
    runs: list[tuple[int, int]] = []
    for start, end in pieces:
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def _max_timestamp(data: bytes, header: BatchHeader, starts: list[int]) -> int:
    """Return the highest timestamp of these records; with log append time, the header's."""
    if not starts:
        return NO_TIMESTAMP
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp
    base = header.base_timestamp
    return max(
        wrapped(base + read_varlong(data, read_varint(data, start)[1] + 1)[0]) for start in starts
    )
