"""Unsigned varints of up to 31 bits, for frames of metadata records and tags in headers."""

from __future__ import annotations

from protocol.errors import EncodeError, ProtocolError
from protocol.schema import Buffer

MAX_UVARINT = 0x7FFFFFFF


def encode_uvarint(value: int) -> bytes:
    """Encode 0 to 2**31 - 1. Raises EncodeError for other values."""
    if not 0 <= value <= MAX_UVARINT:
        raise EncodeError("unsigned varint", value, f"0-{MAX_UVARINT}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buf: Buffer, pos: int, what: str) -> tuple[int, int]:
    """Decode the value at `pos`. Returns (value, next position).

    Raises ProtocolError with `what` if the bytes end early or the varint has more than 5 bytes or
    31 bits.
    """
    value = 0
    for shift in (0, 7, 14, 21, 28):
        if not 0 <= pos < len(buf):
            raise ProtocolError(f"bytes for {what} at {pos}", 0, "1-5")
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAX_UVARINT:
                raise ProtocolError(what, value, f"0-{MAX_UVARINT}")
            return value, pos
    raise ProtocolError(what, "more than 5 bytes", "5 bytes")
