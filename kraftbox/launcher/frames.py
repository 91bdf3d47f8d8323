"""Frames between kraftbox processes: `magic, version, length, msgpack body, crc32c`.

An invalid frame ends the connection. Both ends are kraftbox, so it is a bug or another version, and
the bytes after it cannot be trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgpack

from kraftbox.launcher.checksum import crc32c

Message: TypeAlias = Mapping[str, Any]

MAGIC = b"KBXC"
VERSION = 1
BODY_BYTES_MAX = 1 << 20
TEXT_CHARS_MAX = 4_000
"""Maximum length of an error in a message: enough for a node's error, and within one frame."""
_HEADER = struct.Struct(">4sBI")
_CRC = struct.Struct(">I")


class FrameError(Exception):
    """The bytes are not a frame of this version."""


def encode(message: Message) -> bytes:
    """Return one message as a frame. Raises FrameError if it is larger than BODY_BYTES_MAX."""
    body: bytes = msgpack.packb(message)
    if len(body) > BODY_BYTES_MAX:
        raise FrameError(f"frame body too large: {len(body)} bytes")
    framed: bytes = _HEADER.pack(MAGIC, VERSION, len(body)) + body
    checksum: bytes = _CRC.pack(crc32c(framed))
    return framed + checksum


def clipped(text: str) -> str:
    """Return a text that fits into a message, cut if it is longer than TEXT_CHARS_MAX."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[:TEXT_CHARS_MAX]}... ({len(text)} characters)"


class Decoder:
    """Decoder of frames from a stream, whose chunks may split frames anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that are complete now. Raises FrameError for an invalid frame."""
        buffer = self._rest + data
        messages = []
        at = 0
        while len(buffer) - at >= _HEADER.size:
            size = _checked_size(buffer, at)
            end = at + _HEADER.size + size
            if len(buffer) < end + _CRC.size:
                break
            if _CRC.unpack_from(buffer, end)[0] != crc32c(buffer[at:end]):
                raise FrameError("checksum does not match")
            messages.append(_unpack(buffer[at + _HEADER.size : end]))
            at = end + _CRC.size
        self._rest = buffer[at:]
        return messages

    @property
    def incomplete(self) -> bool:
        """True if the buffered data ends within a frame."""
        return bool(self._rest)


def _checked_size(buffer: bytes, at: int) -> int:
    magic, version, size = _HEADER.unpack_from(buffer, at)
    if magic != MAGIC:
        raise FrameError(f"invalid start of a frame: {magic!r}")
    if version != VERSION:
        raise FrameError(f"invalid frame version {version}; allowed: {VERSION}")
    if size > BODY_BYTES_MAX:
        raise FrameError(f"frame too large: {size} bytes")
    return int(size)


def _unpack(body: bytes) -> dict[str, Any]:
    try:
        message = msgpack.unpackb(body)
    except Exception as error:  # noqa: BLE001 - msgpack lists no errors; the bytes are wrong
        raise FrameError(f"not msgpack: {error!r}") from None
    if not isinstance(message, dict):
        raise FrameError(f"frame body must be a msgpack map, got {type(message).__name__}")
    return message
