"""The frame around a metadata record: frame version, record type, record version, the record.

KRaft's metadata log and the metadata topic of tiered storage use it. All three numbers are unsigned
varints; the frame version is 1.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.schema import Buffer, MetadataRecord
from protocol.varint import decode_uvarint, encode_uvarint

FRAME_VERSION = 1


def encode_framed(record: MetadataRecord, version: int) -> bytes:
    """Frame and encode a record. Raises EncodeError if `version` cannot represent its values."""
    kind = record.RECORD_TYPE
    if kind < 0x80 and version < 0x80:
        return bytes((FRAME_VERSION, kind, version)) + encode(record, version)
    head = encode_uvarint(FRAME_VERSION) + encode_uvarint(kind) + encode_uvarint(version)
    return head + encode(record, version)


def decode_framed(
    value: Buffer, class_of: Callable[[int], type[MetadataRecord]]
) -> tuple[MetadataRecord, int]:
    """Decode a framed record. Returns it and its version.

    `class_of` maps a record type to its class and raises ProtocolError for an unknown one. Also
    raises ProtocolError for another frame version, an unknown record version, broken bytes and
    remaining bytes.
    """
    if len(value) > 3 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        kind, version, pos = value[1], value[2], 3
    else:
        frame_version, pos = decode_uvarint(value, 0, "frame version")
        if frame_version != FRAME_VERSION:
            raise ProtocolError("frame version of a record", frame_version, str(FRAME_VERSION))
        kind, pos = decode_uvarint(value, pos, "record type")
        version, pos = decode_uvarint(value, pos, "record version")
    record, end = decode(class_of(kind), value, version, pos)
    if end != len(value):
        raise ProtocolError(f"bytes after a {type(record).__name__}", len(value) - end, "0")
    return record, version
