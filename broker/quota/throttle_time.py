"""Throttle time in a response, including responses that are already encoded."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from protocol.schema import ApiMessage, Buffer, parse_versions

THROTTLE: Final = "throttle_time_ms"
_int32 = struct.Struct(">i")


def can_tell(response: type[ApiMessage], version: int) -> bool:
    """Return whether this version has the field."""
    return any(
        field.name == THROTTLE and version in parse_versions(field.versions)
        for field in response.FIELDS
    )


def read_encoded(response: type[ApiMessage], version: int, parts: Sequence[Buffer]) -> int:
    """Return the time in a body that begins with it, as all forwarded ones do; 0 in others."""
    if not _is_first(response, version):
        return 0
    told_ms: int = _int32.unpack_from(parts[0])[0]
    return told_ms


def raise_encoded(
    response: type[ApiMessage], version: int, parts: Sequence[Buffer], wait_ms: int
) -> list[Buffer]:
    """Return the body with at least this time in it, if it begins with one."""
    if not _is_first(response, version):
        return list(parts)
    first = bytearray(parts[0])
    _int32.pack_into(first, 0, max(wait_ms, read_encoded(response, version, parts)))
    return [first, *parts[1:]]


def _is_first(response: type[ApiMessage], version: int) -> bool:
    for field in response.FIELDS:
        if version in parse_versions(field.versions) and field.tag is None:
            return field.name == THROTTLE
    return False
