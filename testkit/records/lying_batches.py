"""Record batches built byte by byte, in which any field can be false."""

from __future__ import annotations

import struct
import time

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_START = 21
LEGACY_MAGICS = (0, 1)


def zigzag(value: int) -> bytes:
    """Return a signed varint in zigzag encoding."""
    return uvarint((value << 1) ^ (value >> 63) if value < 0 else value << 1)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def record(
    value: bytes | None = b"v",
    key: bytes | None = None,
    *,
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    headers: bytes = b"\x00",
    size: int | None = None,
) -> bytes:
    """Return one record. `headers` are the raw bytes of its count and headers, `size` a
    false size."""
    body = (
        b"\x00"
        + zigzag(timestamp_delta)
        + zigzag(offset_delta)
        + field(key)
        + field(value)
        + headers
    )
    return zigzag(len(body) if size is None else size) + body


def records(count: int, *, key: bytes | None = None, value: bytes | None = b"v") -> bytes:
    return b"".join(record(value, key, offset_delta=n) for n in range(count))


def batch(
    payload: bytes | None = None,
    count: int = 1,
    *,
    base_offset: int = 0,
    length: int | None = None,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return a batch of `count` records whose bytes are `payload`."""
    if payload is None:
        payload = records(count)
    now_ms = int(time.time() * 1000)
    base = now_ms if base_timestamp is None else base_timestamp
    data = bytearray(
        HEADER.pack(
            base_offset,
            HEADER.size - 12 + len(payload) if length is None else length,
            -1,
            magic,
            0,
            attributes,
            count - 1 if last_offset_delta is None else last_offset_delta,
            base,
            base if max_timestamp is None else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        + payload
    )
    right = crc32c(bytes(data[CRC_START:]))
    struct.pack_into(">I", data, 17, right if crc is None else crc)
    return bytes(data)


def legacy_message(magic: int, value: bytes = b"v", attributes: int = 0) -> bytes:
    """Return a message of magic 0 or 1 with its offset and size."""
    import zlib

    body = bytes((magic, attributes))
    if magic == 1:
        body += struct.pack(">q", int(time.time() * 1000))
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message
