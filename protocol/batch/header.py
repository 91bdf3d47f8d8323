"""The 61-byte header of a record batch (magic 2), read and patched in place.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4
    | base timestamp 8 | max timestamp 8 | producer id 8 | epoch 2 | base sequence 4 | count 4

Two properties keep the hot path cheap. The length counts the bytes after it, so a batch has `12 +
length` bytes. The CRC (Castagnoli) covers everything from the attributes on. So a broker may set
base offset and leader epoch of a producer's batch without a new CRC: `patch` writes 12 bytes and
copies none.

A log or a Fetch response is a sequence of batches, the last one possibly truncated, since Fetch
limits bytes. So `iter_batches` ends without an error at a truncated batch. A caller that does not
accept one compares the end with the buffer's (as `protocol.batch.validate` does).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import TypeAlias

from protocol.checksum import crc32c
from protocol.compression import Codec, codec_of
from protocol.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES = 61
LENGTH_OVERHEAD_BYTES = 12
"""Size of base offset and length, which `batch_length` does not count."""
LENGTH_MIN = HEADER_BYTES - LENGTH_OVERHEAD_BYTES
CRC_POSITION = 17
CRC_START = 21
"""First byte that the CRC covers: the attributes."""
MAX_TIMESTAMP_POSITION = 35
MAGIC_POSITION = 16
MAGIC = 2

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_BYTES

_unpack = HEADER.unpack_from
_frame = struct.Struct(">qi")
_base_offset = struct.Struct(">q")
_int32 = struct.Struct(">i")
_uint32 = struct.Struct(">I")
_attributes = struct.Struct(">h")
_int64 = struct.Struct(">q")


class CorruptBatch(ProtocolError):
    """Bytes that cannot be a record batch of magic 2."""


class TimestampType(IntEnum):
    """Meaning of a batch's timestamps (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader:
    """The fields of one header, in wire order. The values are as read, without validation."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(  # noqa: PLR0913 - positional on purpose: the struct is splatted into it
        self,
        base_offset: int,
        batch_length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def compression(self) -> Codec:
        """The codec. Raises ApiError(UNSUPPORTED_COMPRESSION_TYPE) for an unassigned number."""
        return codec_of(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """True if the cleaner stored a delete horizon in `base_timestamp` (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; it wraps from 2^31-1 to 0. -1 without a base
        sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    def fields(self) -> tuple[int, ...]:
        """Return the values in wire order, as `HEADER` packs them."""
        return (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchHeader) and self.fields() == other.fields()

    def __repr__(self) -> str:
        return (
            f"BatchHeader(offsets={self.base_offset}..{self.last_offset}, "
            f"size={self.size_bytes}, epoch={self.leader_epoch}, count={self.record_count}, "
            f"attributes={self.attributes:#x}, producer={self.producer_id}/"
            f"{self.producer_epoch}/{self.base_sequence})"
        )


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Parse the header at `pos`, without further validation.

    Raises CorruptBatch if fewer than 61 bytes are left.
    """
    try:
        return BatchHeader(*_unpack(buf, pos))
    except struct.error:
        raise CorruptBatch(f"too few bytes for a batch header: {len(buf) - pos}") from None


def iter_batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[BatchHeader, int]]:
    """Yield each whole batch from `pos` on, as (header, position of the batch).

    Stops before a truncated last batch. Raises CorruptBatch for a length below the header's or
    another magic, so that the iteration always advances. CRCs are not checked.
    """
    end = len(buf)
    while end - pos >= HEADER_BYTES:
        header = BatchHeader(*_unpack(buf, pos))
        check_frame(header)
        following = pos + header.batch_length + LENGTH_OVERHEAD_BYTES
        if following > end:
            return
        yield header, pos
        pos = following
    # Too short for a header, but long enough to detect a wrong length or magic.
    if end - pos > MAGIC_POSITION:
        _, length = _frame.unpack_from(buf, pos)
        if length < LENGTH_MIN or buf[pos + MAGIC_POSITION] != MAGIC:
            raise CorruptBatch(
                f"invalid batch length {length} with magic {buf[pos + MAGIC_POSITION]}"
            )


def iter_checked(buf: Buffer, pos: int = 0) -> Iterator[tuple[BatchHeader, int]]:
    """Yield the batches of `iter_batches`; also raises CorruptBatch for a wrong CRC."""
    for header, at in iter_batches(buf, pos):
        if crc_of(buf, at, header.size_bytes) != header.crc:
            raise CorruptBatch(f"wrong CRC in the batch at offset {header.base_offset}")
        yield header, at


def whole_batches_size(buf: Buffer, pos: int = 0) -> int:
    """Return the size of the whole batches from `pos` on, without a truncated last one.

    Raises CorruptBatch as `iter_batches` does.
    """
    end = pos
    for header, at in iter_batches(buf, pos):
        end = at + header.size_bytes
    return end - pos


def check_frame(header: BatchHeader) -> None:
    """Check length and magic. Raises CorruptBatch unless they are those of a batch of magic 2."""
    if header.batch_length < LENGTH_MIN or header.magic != MAGIC:
        raise CorruptBatch(f"invalid batch length {header.batch_length} with magic {header.magic}")


def patch(buf: bytearray | memoryview, base_offset: int, leader_epoch: int, pos: int = 0) -> None:
    """Set base offset and leader epoch of the batch at `pos`. The CRC stays valid."""
    _base_offset.pack_into(buf, pos, base_offset)
    _int32.pack_into(buf, pos + 12, leader_epoch)


def crc_of(buf: Buffer, pos: int, size_bytes: int) -> int:
    """Compute the CRC32C of the batch of `size_bytes` at `pos`, without copying."""
    return crc32c(memoryview(buf)[pos + CRC_START : pos + size_bytes])


def crc_ok(buf: Buffer, pos: int, size_bytes: int) -> bool:
    """Return whether the stored CRC matches the bytes."""
    (stored,) = _uint32.unpack_from(buf, pos + CRC_POSITION)
    return crc_of(buf, pos, size_bytes) == int(stored)


def write_crc(buf: bytearray | memoryview, pos: int, size_bytes: int) -> None:
    """Compute and store the CRC of the batch at `pos`."""
    _uint32.pack_into(buf, pos + CRC_POSITION, crc_of(buf, pos, size_bytes))


def set_log_append_time(
    buf: bytearray | memoryview, pos: int, size_bytes: int, timestamp_ms: int
) -> None:
    """Set the timestamp of all records to the broker's time, with the attribute bit and a new
    CRC."""
    (attributes,) = _attributes.unpack_from(buf, pos + CRC_START)
    _attributes.pack_into(buf, pos + CRC_START, attributes | LOG_APPEND_TIME_BIT)
    _int64.pack_into(buf, pos + MAX_TIMESTAMP_POSITION, timestamp_ms)
    write_crc(buf, pos, size_bytes)


def set_max_timestamp(
    buf: bytearray | memoryview, pos: int, size_bytes: int, timestamp_ms: int
) -> None:
    """Correct the highest timestamp of the batch at `pos`, with a new CRC."""
    _int64.pack_into(buf, pos + MAX_TIMESTAMP_POSITION, timestamp_ms)
    write_crc(buf, pos, size_bytes)
