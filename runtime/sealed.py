"""Sealed files: `magic, version, msgpack body, crc32c`, the format of private files."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
from crc32c import crc32c

_HEADER = struct.Struct(">4sB")
_CRC = struct.Struct(">I")


class SealBroken(ValueError):
    """The bytes are not a complete file of this version; the message has the reason."""


def seal(magic: bytes, version: int, body: object) -> bytes:
    """Return the bytes of a file. `magic` has four bytes; `body` must be encodable by msgpack."""
    framed: bytes = _HEADER.pack(magic, version) + msgpack.packb(body)
    checksum: bytes = _CRC.pack(crc32c(framed))
    return framed + checksum


def unseal(magic: bytes, version: int, data: bytes) -> Any:
    """Return the body of a file. Raises SealBroken."""
    if len(data) < _HEADER.size + _CRC.size:
        raise SealBroken(f"too short: {len(data)} bytes")
    found, written = _HEADER.unpack_from(data)
    if found != magic:
        raise SealBroken(f"expected to begin with {magic!r}, got {found!r}")
    if written != version:
        raise SealBroken(f"unknown version {written}; expected {version}")
    framed = memoryview(data)[: -_CRC.size]
    if _CRC.unpack(data[-_CRC.size :])[0] != crc32c(framed):
        raise SealBroken("checksum does not match: truncated or damaged")
    try:
        return msgpack.unpackb(framed[_HEADER.size :])
    except (ValueError, msgpack.UnpackException) as error:
        raise SealBroken(f"cannot read the body: {error!r}") from None
