"""Identifiers of the wire protocol, and their text form.

A UUID is 16 raw bytes everywhere in the code; text is used only in output, files and input. The
text is url-safe base64 without padding (22 characters), as Kafka's tools print it.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    import random

TopicId = NewType("TopicId", bytes)
DirectoryId = NewType("DirectoryId", bytes)
ProducerId = NewType("ProducerId", int)

UUID_SIZE_BYTES: Final = 16
UUID_TEXT_LENGTH: Final = 22

ZERO_UUID: Final = bytes(UUID_SIZE_BYTES)
METADATA_TOPIC_ID: Final = TopicId(bytes(15) + b"\x01")  # `__cluster_metadata`

# Directory ids with a special meaning (KIP-858); random ids never have these values.
DIRECTORY_MIGRATING: Final = DirectoryId(ZERO_UUID)
DIRECTORY_UNASSIGNED: Final = DirectoryId(bytes(15) + b"\x01")
DIRECTORY_LOST: Final = DirectoryId(bytes(15) + b"\x02")

RESERVED_UUIDS: Final = frozenset(bytes(15) + bytes([last]) for last in range(100))


def uuid_to_text(value: bytes) -> str:
    """Return the 22 characters of a 16-byte UUID. Raises ValueError for another length."""
    if len(value) != UUID_SIZE_BYTES:
        raise ValueError(f"a uuid must have {UUID_SIZE_BYTES} bytes, not {len(value)}")
    return urlsafe_b64encode(value)[:UUID_TEXT_LENGTH].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """Return the 16 bytes of a UUID's text. Raises ValueError for an invalid text."""
    if len(text.rstrip("=")) != UUID_TEXT_LENGTH or not text.isascii():
        raise ValueError(f"a uuid must have {UUID_TEXT_LENGTH} characters, got {text!r}")
    try:
        value = urlsafe_b64decode(text.rstrip("=") + "==")
    except binascii.Error as broken:
        raise ValueError(f"expected url-safe base64, got {text!r}") from broken
    if len(value) != UUID_SIZE_BYTES:
        raise ValueError(f"expected url-safe base64 of {UUID_SIZE_BYTES} bytes, got {text!r}")
    return value


def random_uuid(rng: random.Random) -> bytes:
    """Return a random (version 4) UUID, never a reserved one and never one starting with ``-``.

    A leading dash would make the text look like an option to command-line tools.
    """
    while True:
        raw = bytearray(rng.getrandbits(8 * UUID_SIZE_BYTES).to_bytes(UUID_SIZE_BYTES, "big"))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        value = bytes(raw)
        if value not in RESERVED_UUIDS and not uuid_to_text(value).startswith("-"):
            return value
