"""The walks over the records of a batch that cleaning consists of.

Ten million records are walked twice, so `spans` is the cost of cleaning: what nobody asks for (the
timestamp's value, headers, the value itself) is skipped unread, short varints are read in place,
and nothing is called for the usual record. Lengths are still checked against the bytes that are
there, as nobody may have walked these records before: the topic may have been compacted only later.
Records that make no sense are a ValueError.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from protocol.batch.header import NO_TIMESTAMP, BatchHeader, TimestampType
from protocol.batch.records import read_varint, read_varlong
from storage.log.cleaning.key_offsets import KEY_BYTES_MAX, KeyOffsets, long_key

VARLONG_BYTES_MAX: Final = 10

_ZIGZAG = tuple((n >> 1) ^ -(n & 1) for n in range(128))

Span: TypeAlias = tuple[int, int, int, bytes | None, int]
"""Start of the record, position of its timestamp delta, offset delta, key, position of its value's
length. A plain tuple: a named one costs as much as the rest of the walk."""


class Judged(NamedTuple):
    """Which records of a batch stay."""

    runs: list[tuple[int, int]]
    """Their bytes: (start, end) in the payload, neighbours joined."""
    offsets: list[int]
    tombstones: bool
    """Whether one of them has no value."""
    max_timestamp: int


def spans(data: bytes, count: int) -> list[Span]:
    """Where the parts of `count` records are that fill `data` exactly. Raises ValueError."""
    try:
        found, end = _spans(data, count)
    except IndexError:
        raise ValueError("records are cut short") from None
    if end != len(data):
        raise ValueError(f"{count} records end at {end} of {len(data)} bytes")
    return found


def _spans(data: bytes, count: int) -> tuple[list[Span], int]:
    found: list[Span] = []
    end, zigzag = 0, _ZIGZAG
    for _ in range(count):
        start = end
        byte = data[start]
        if byte < 128:
            pos = start + 1
            end = pos + zigzag[byte]
        else:
            size, pos = read_varint(data, start)
            end = pos + size
        time_at = pos + 1
        pos = time_at + 1 if data[time_at] < 128 else _after_varlong(data, time_at)
        delta = data[pos]
        if delta < 128:
            delta = zigzag[delta]
            pos += 1
        else:
            delta, pos = read_varint(data, pos)
        length = data[pos]
        if length < 128:
            length = zigzag[length]
            pos += 1
        else:
            length, pos = read_varint(data, pos)
        value_at = pos + length if length > 0 else pos
        if value_at >= end:
            raise ValueError(f"a key of {length} bytes in a record that ends before")
        found.append((start, time_at, delta, data[pos:value_at] if length >= 0 else None, value_at))
    return found, end


def _after_varlong(data: bytes, pos: int) -> int:
    """The position behind a number of up to 64 bits that nobody asks for."""
    for at in range(pos, pos + VARLONG_BYTES_MAX):
        if data[at] < 128:
            return at + 1
    raise ValueError("a varint longer than 64 bits")


def collect_keys(data: bytes, header: BatchHeader, into: KeyOffsets, first_offset: int) -> None:
    """Note key and offset of every record with a key, from `first_offset` on. Raises ValueError."""
    base, offsets = header.base_offset, into.offsets
    for _, _, delta, key, _ in spans(data, header.record_count):
        if key is not None and base + delta >= first_offset:
            offsets[key if len(key) <= KEY_BYTES_MAX else long_key(key)] = base + delta


def judge(data: bytes, header: BatchHeader, newest: KeyOffsets, *, keep_tombstones: bool) -> Judged:
    """A record stays if no newer one has its key, unless it is a tombstone and those may go.

    Records behind the reach of the map stay unseen; a record without key does not stay. Raises
    ValueError.
    """
    base, latest, newest_of = header.base_offset, newest.latest_offset, newest.offsets.get
    found = spans(data, header.record_count)
    ends = [span[0] for span in found[1:]]
    ends.append(len(data))
    kept: list[tuple[Span, int]] = []
    tombstones = False
    for span, end in zip(found, ends, strict=True):
        _, _, delta, key, value_at = span
        offset = base + delta
        if offset <= latest:
            if key is None:
                continue
            if newest_of(key if len(key) <= KEY_BYTES_MAX else long_key(key), -1) > offset:
                continue
        if _has_no_value(data, value_at):
            if offset <= latest and not keep_tombstones:
                continue
            tombstones = True
        kept.append((span, end))
    return Judged(
        _joined([(span[0], end) for span, end in kept]),
        [base + span[2] for span, _ in kept],
        tombstones,
        _max_timestamp(data, header, [span[1] for span, _ in kept]),
    )


def _has_no_value(data: bytes, value_at: int) -> bool:
    # The length -1 is the byte 1; a longer spelling of it is legal.
    byte = data[value_at]
    return byte == 1 or (byte > 127 and read_varint(data, value_at)[0] < 0)


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces with neighbours made one."""
    runs: list[tuple[int, int]] = []
    for start, end in pieces:
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def _max_timestamp(data: bytes, header: BatchHeader, times_at: list[int]) -> int:
    """The highest timestamp among these records; that of the header if it is the broker's."""
    if not times_at:
        return NO_TIMESTAMP
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp
    return header.base_timestamp + max(
        _ZIGZAG[data[at]] if data[at] < 128 else read_varlong(data, at)[0] for at in times_at
    )
