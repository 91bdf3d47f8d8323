"""Records inside a batch: fast and safe readers, and builders of batches.

A record is a signed-varint length, followed by attributes, timestamp and offset deltas, key, value
and headers. All numbers are untrusted, so each length is checked against the record's own end
before it is used, and a record must end exactly at its length. That one comparison also detects a
varint that exceeds the end. The readers take plain `bytes` and decode single-byte varints with a
table, because this is the only per-record loop that the broker runs.

A broken record raises `InvalidRecord` with the record's index in the batch; broken compression
raises an ApiError from `protocol.compression`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from protocol.batch.header import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    iter_batches,
    write_crc,
)
from protocol.compression import DEFAULT_BUDGET_BYTES, Codec, compress, decompress
from protocol.errors import ProtocolError

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

RECORD_BYTES_MIN = 6
"""The shortest record without its length: attributes and five one-byte varints."""

_ZIGZAG = tuple((n >> 1) ^ -(n & 1) for n in range(128))


class InvalidRecord(ProtocolError):
    """A record that cannot be read; `index` is its position in the batch."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(f"record {index}: {message}")
        self.index = index
        self.message = message


class RecordTooLarge(InvalidRecord):
    """A record of a compressed batch above `max.decompressed.message.bytes`; `before` are the
    uncompressed records in front of it, `index` in number."""

    def __init__(self, index: int, message: str, before: bytes) -> None:
        super().__init__(index, message)
        self.before = before


class Record:
    """One record. `offset` and `timestamp` are absolute; -1 means that there is no value."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: int = -1,
        timestamp: int = NO_TIMESTAMP,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.offset, self.timestamp, self.key, self.value, list(self.headers)) == (
            other.offset,
            other.timestamp,
            other.key,
            other.value,
            list(other.headers),
        )

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={list(self.headers)!r})"
        )


class Producer(NamedTuple):
    """The producer fields of a batch header; the default is a producer without an id."""

    id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    sequence: int = NO_SEQUENCE
    transactional: bool = False


NO_PRODUCER = Producer()


class Scanned(NamedTuple):
    """Positions of the parts of one record in the uncompressed bytes; a length of -1 is null."""

    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    headers_at: int
    header_count: int
    end: int


# --- reading ---------------------------------------------------------------------------------


RECORD_BYTES_MAX: Final = 2_147_483_639
"""Default of `max.decompressed.message.bytes`: no record of a batch can be larger."""


def records_payload(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> bytes:
    """Return the uncompressed records of the batch at `pos`.

    `record_bytes_max` limits each record of a compressed batch, as in Kafka 4.4.

    Raises ApiError for an unassigned codec, broken compression, or more than `budget_bytes`.
    Raises RecordTooLarge for a record above its limit; the rest is not decompressed then.
    """
    body = memoryview(buf)[pos + HEADER_BYTES : pos + header.size_bytes]
    if not header.attributes & CODEC_MASK:
        return bytes(body)
    if record_bytes_max >= RECORD_BYTES_MAX:
        return decompress(header.compression, body, budget_bytes)

    def look(data: Buffer) -> None:
        check_record_sizes(data, header.record_count, record_bytes_max)

    payload = decompress(header.compression, body, budget_bytes, look)
    look(payload)
    return payload


def check_record_sizes(data: Buffer, count: int, record_bytes_max: int) -> None:
    """Raise RecordTooLarge for the first of `count` records that is above `record_bytes_max`.

    `data` may be the first part of the records; the reader of the records finds other damage.
    """
    at = 0
    for index in range(count):
        start = at
        try:
            size, at = read_varint(data, at)
        except (ValueError, IndexError):
            return
        if size > record_bytes_max:
            raise RecordTooLarge(
                index,
                f"{size} bytes, max.decompressed.message.bytes is {record_bytes_max}",
                bytes(memoryview(data)[:start]),
            )
        if size < 0:
            return
        at += size


def scan(data: bytes, count: int) -> Iterator[Scanned]:
    """Yield the bounds of each of `count` records that fill `data` exactly.

    Keys, values and headers are skipped, not copied; header bounds are checked, too. Raises
    InvalidRecord, also for too few records and for bytes after the last.
    """
    pos = 0
    for index in range(count):
        try:
            scanned = _scan_one(data, pos)
            if scanned.header_count:
                _read_headers(data, scanned)
            elif scanned.headers_at != scanned.end:
                raise ValueError("extra bytes at the end of the record")
        except (ValueError, IndexError) as error:
            raise InvalidRecord(index, _reason(error)) from None
        yield scanned
        pos = scanned.end
    if pos != len(data):
        raise InvalidRecord(
            count, f"{len(data) - pos} extra bytes after the last of {count} records"
        )


def read_batch(
    buf: Buffer, pos: int, header: BatchHeader, budget_bytes: int = DEFAULT_BUDGET_BYTES
) -> Iterator[Record]:
    """Yield the records of the batch at `pos`, control records included.

    Raises the errors of `scan` and `records_payload`.
    """
    yield from decode_payload(records_payload(buf, pos, header, budget_bytes), header)


def decode_payload(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records in the uncompressed bytes of a batch. Raises the errors of `scan`.

    A timestamp outside int64 wraps around, as in Java's readers.
    """
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    at = 0
    for index in range(header.record_count):
        try:
            one = _scan_one(data, at)
            at = one.end
            headers: Headers = ()
            if one.header_count:
                headers = _read_headers(data, one)
            elif one.headers_at != at:
                raise ValueError("extra bytes at the end of the record")
        except (ValueError, IndexError) as error:
            raise InvalidRecord(index, _reason(error)) from None
        key_at, value_at = one.key_at, one.value_at
        timestamp = base_timestamp + one.timestamp_delta if fixed is None else fixed
        if not -(2**63) <= timestamp < 2**63:
            timestamp = wrapped(timestamp)
        yield Record(
            base_offset + one.offset_delta,
            timestamp,
            data[key_at : key_at + one.key_length] if one.key_length >= 0 else None,
            data[value_at : value_at + one.value_length] if one.value_length >= 0 else None,
            headers,
        )
    if at != len(data):
        raise InvalidRecord(
            header.record_count,
            f"{len(data) - at} extra bytes after the last of {header.record_count} records",
        )


def record_times(
    data: bytes, header: BatchHeader, count: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (timestamp, offset) of the records in the uncompressed bytes of a batch, or of the
    first `count` of them.

    Keys, values and headers are skipped by the record's length, unchecked. Raises InvalidRecord.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    at, length = 0, len(data)
    for index in range(header.record_count if count is None else count):
        try:
            size, at = read_varint(data, at)
            end = at + size
            if size < RECORD_BYTES_MIN or end > length:
                raise ValueError(f"length {size}, but {length - at} bytes remain")
            timestamp_delta, at = read_varlong(data, at + 1)
            offset_delta, at = read_varint(data, at)
        except (ValueError, IndexError) as error:
            raise InvalidRecord(index, _reason(error)) from None
        timestamp = base_timestamp + timestamp_delta if fixed is None else fixed
        if not -(2**63) <= timestamp < 2**63:
            timestamp = wrapped(timestamp)
        yield timestamp, base_offset + offset_delta
        at = end


def read_records(
    buf: Buffer,
    *,
    include_control: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
) -> Iterator[Record]:
    """Yield the records of all whole batches in `buf`; a truncated last batch is left out.

    CRCs are not checked. Raises CorruptBatch, InvalidRecord or ApiError.
    """
    for header, pos in iter_batches(buf):
        if include_control or not header.is_control:
            yield from read_batch(buf, pos, header, budget_bytes)


def _scan_one(data: bytes, pos: int) -> Scanned:
    byte = data[pos]
    if byte < 128:
        size = _ZIGZAG[byte]
        pos += 1
    else:
        size, pos = read_varint(data, pos)
    end = pos + size
    if size < RECORD_BYTES_MIN or end > len(data):
        raise ValueError(f"length {size}, but {len(data) - pos} bytes remain")
    pos += 1  # attributes of a record: none are defined
    byte = data[pos]
    if byte < 128:
        timestamp_delta = _ZIGZAG[byte]
        pos += 1
    else:
        timestamp_delta, pos = read_varlong(data, pos)
    offset_delta, pos = read_varint(data, pos)
    if data[pos] == _NULL_BYTE:
        key_length, key_at = -1, pos + 1
        pos = key_at
    else:
        key_length, key_at = read_varint(data, pos)
        pos = _skip(key_at, key_length, end)
    value_length, value_at = read_varint(data, pos)
    pos = _skip(value_at, value_length, end)
    if data[pos]:
        header_count, pos = read_varint(data, pos)
    else:
        header_count, pos = 0, pos + 1
    # A header takes at least two bytes, which limits the count by the remaining bytes.
    if header_count < 0 or header_count * 2 > end - pos:
        raise ValueError(f"{header_count} headers, but {end - pos} bytes remain")
    return Scanned(
        timestamp_delta,
        offset_delta,
        key_at,
        key_length,
        value_at,
        value_length,
        pos,
        header_count,
        end,
    )


def _skip(pos: int, length: int, end: int) -> int:
    if length < 0:
        if length != -1:
            raise ValueError(f"invalid length {length}")
        return pos
    if length > end - pos:
        raise ValueError(f"length {length}, but {end - pos} bytes remain")
    return pos + length


def _read_headers(data: bytes, scanned: Scanned) -> list[tuple[str, bytes | None]]:
    pos, end = scanned.headers_at, scanned.end
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(scanned.header_count):
        length, pos = read_varint(data, pos)
        if length < 0:
            raise ValueError("header without a key")
        following = _skip(pos, length, end)
        # Kafka accepts any bytes as a key; surrogateescape preserves those that are not UTF-8.
        key = data[pos:following].decode(errors="surrogateescape")
        length, pos = read_varint(data, following)
        following = _skip(pos, length, end)
        headers.append((key, data[pos:following] if length >= 0 else None))
        pos = following
    if pos != end:
        raise ValueError("extra bytes at the end of the record")
    return headers


def _reason(error: ValueError | IndexError) -> str:
    return "truncated" if isinstance(error, IndexError) else str(error)


# --- varints (zigzag, as protocol buffers write them) ----------------------------------------


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """Read a signed 32-bit value. Returns it and the next position. Raises ValueError,
    IndexError."""
    byte = data[pos]
    pos += 1
    if byte < 128:
        return _ZIGZAG[byte], pos
    raw = byte & 127
    for shift in (7, 14, 21, 28):
        byte = data[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            if raw > 0xFFFFFFFF:
                break
            return (raw >> 1) ^ -(raw & 1), pos
    raise ValueError("varint longer than 32 bits")


def read_varlong(data: bytes, pos: int) -> tuple[int, int]:
    """Read a signed 64-bit value. Returns it and the next position. Raises ValueError,
    IndexError."""
    raw = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise ValueError("varint longer than 64 bits")
    if raw > 0xFFFFFFFFFFFFFFFF:
        raise ValueError("varint longer than 64 bits")
    return (raw >> 1) ^ -(raw & 1), pos


def wrapped(value: int) -> int:
    """Return `value` as an int64 that overflowed, as Java computes timestamps."""
    return (value + 2**63) % 2**64 - 2**63


def varint(value: int) -> bytes:
    """Encode a signed 32- or 64-bit value."""
    raw = value << 1 if value >= 0 else (~value << 1) | 1
    if raw < 128:
        return _ONE_BYTE[raw]
    if raw < 128 * 128:
        return bytes((raw & 127 | 128, raw >> 7))
    out = bytearray()
    while raw >= 128:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_ONE_BYTE = tuple(bytes((n,)) for n in range(128))
_NULL = varint(-1)
_NULL_BYTE = _NULL[0]


# --- building --------------------------------------------------------------------------------


def build_batch(
    records: Iterable[Record],
    base_offset: int = 0,
    *,
    leader_epoch: int = NO_LEADER_EPOCH,
    compression: Codec = Codec.NONE,
    level: int | None = None,
    producer: Producer = NO_PRODUCER,
    control: bool = False,
    log_append_time_ms: int | None = None,
    keep_offsets: bool = False,
) -> bytes:
    """Build one batch of these records, CRC included.

    Offsets are consecutive from `base_offset`; with `keep_offsets` they are the records' own
    (ascending, from `base_offset` on). `log_append_time_ms` sets the timestamp of all records to
    the broker's time.
    """
    listed = records if isinstance(records, (list, tuple)) else list(records)
    base_timestamp = listed[0].timestamp if listed else NO_TIMESTAMP
    payload, last_delta, max_timestamp = _encode(
        listed, base_timestamp, base_offset if keep_offsets else None
    )
    attributes = (TRANSACTIONAL_BIT if producer.transactional else 0) | (
        CONTROL_BIT if control else 0
    )
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer.id,
        producer.epoch,
        producer.sequence,
        len(listed),
    )
    return assemble(header, payload, compression, level)


def rebuild_batch(
    header: BatchHeader,
    records: Sequence[Record],
    *,
    compression: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Build the batch of `header` with only these of its records, which keep their offsets.

    Offset range, epoch, producer fields and flags stay even if no record does, as cleaning
    requires. `compression` None keeps the codec. A delete horizon replaces the base timestamp
    (KIP-534).
    """
    base_timestamp = records[0].timestamp if records else header.base_timestamp
    attributes = header.attributes & ~DELETE_HORIZON_BIT
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    payload, _, max_timestamp = _encode(records, base_timestamp, header.base_offset)
    if header.attributes & LOG_APPEND_TIME_BIT or not records:
        max_timestamp = header.max_timestamp
    fields = BatchHeader(*header.fields())
    fields.attributes = attributes
    fields.base_timestamp = base_timestamp
    fields.max_timestamp = max_timestamp
    fields.record_count = len(records)
    return assemble(
        fields, payload, header.compression if compression is None else compression, level
    )


def assemble(
    header: BatchHeader, payload: Buffer, compression: Codec, level: int | None = None
) -> bytes:
    """Build a batch of `header`'s fields and the uncompressed `payload`.

    An empty payload is not compressed. Length, CRC and codec bits are computed; all other fields
    are copied.
    """
    if not payload:
        compression = Codec.NONE
    body = compress(compression, payload, level)
    out = bytearray(HEADER_BYTES)
    fields = list(header.fields())
    fields[1] = HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(body)
    fields[5] = header.attributes & ~CODEC_MASK | compression
    HEADER.pack_into(out, 0, *fields)
    out += body
    write_crc(out, 0, len(out))
    return bytes(out)


def _encode(
    records: Sequence[Record], base_timestamp: int, base_offset: int | None
) -> tuple[bytearray, int, int]:
    """Return the uncompressed bytes, the last offset delta and the highest timestamp."""
    out = bytearray()
    max_timestamp = NO_TIMESTAMP
    delta = -1
    for record in records:
        delta = delta + 1 if base_offset is None else record.offset - base_offset
        timestamp = record.timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        key, value = record.key, record.value
        body = b"".join(
            (
                b"\x00",
                b"\x00"
                if timestamp == base_timestamp
                else varint(wrapped(timestamp - base_timestamp)),
                varint(delta),
                _NULL if key is None else varint(len(key)) + key,
                _NULL if value is None else varint(len(value)) + value,
                _encode_headers(record.headers) if record.headers else b"\x00",
            )
        )
        out += varint(len(body))
        out += body
    return out, max(delta, 0), max_timestamp


def _encode_headers(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for key, value in headers:
        raw = key.encode(errors="surrogateescape")
        parts += (varint(len(raw)), raw)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (varint(len(value)), value)
    return b"".join(parts)
