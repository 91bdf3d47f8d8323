"""Messages to bytes and back.

An encoder and a decoder are compiled for a class and version when first used (a quarter of a
millisecond each) and kept on the class. `protocol.twin` reads the same schema slowly; it says
what exactly was wrong when the fast path gives up, and serves the tests as oracle.

Limits (checked before memory is taken): a list may not announce more elements than the bytes
left can hold, nor more than 1,000,000; a section no more than 10,000 tagged fields; a string or
byte field no more bytes than are left (a string at most 32767), a varint takes at most five bytes,
null stands only where the schema allows it, tags rise. What is not UTF-8 in a string becomes
U+FFFD, as in Kafka: clients do send such client ids.

`decode` returns when it is done. Bytes from outside of any size are for `decode_in_slices`, which
pauses, or `decode_field`, which refuses what takes long (`protocol.decoding`). Records of a log
are read whatever they take: a node that refuses what was committed could not go on.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeVar

from protocol.compiler.decoder import compile_decoder
from protocol.compiler.encoder import compile_encoder
from protocol.compiler.plan import plan_message
from protocol.compiler.source import Malformed
from protocol.compiler.steps import STEP_WORK
from protocol.decoding import (
    UNREADABLE,
    WHOLE_BYTES,
    Allowance,
    Decoding,
    decode_at_once,
    why_unreadable,
)
from protocol.errors import EncodeError, ProtocolError
from protocol.schema import Buffer, Message

M = TypeVar("M", bound=Message)

FIELD_WORK_MAX: Final = 20_000
"""Elements of a message inside another one that is decoded at once."""
_EXPLAINED_FIELDS = 1_000

_UNWRITABLE = (
    Malformed,
    struct.error,
    AttributeError,
    TypeError,
    ValueError,
    OverflowError,
)


def encode(msg: Message, version: int) -> bytes:
    """Encode a message; EncodeError when a value is out of range or the version lacks it."""
    parts: list[Buffer] = []
    encoder = msg._encoders.get(version) or _encoder(type(msg), version)
    try:
        last = encoder(msg, bytearray(), parts)
    except _UNWRITABLE as error:
        raise _why_unwritable(msg, version, error) from None
    if not parts:
        return bytes(last)
    parts.append(last)
    return b"".join(parts)


def encode_parts(msg: Message, version: int, prefix: Buffer = b"") -> list[Buffer]:
    """Encode a message as a list of buffers whose concatenation is `prefix` and the message.

    Record sets (above a few hundred bytes) are parts of their own and are not copied. The first
    part is a fresh bytearray that begins with `prefix`, so a frame length can be patched into it.
    EncodeError as in `encode`.
    """
    parts: list[Buffer] = []
    encoder = msg._encoders.get(version) or _encoder(type(msg), version)
    try:
        last = encoder(msg, bytearray(prefix), parts)
    except _UNWRITABLE as error:
        raise _why_unwritable(msg, version, error) from None
    if last or not parts:
        parts.append(last)
    return parts


def decode(cls: type[M], buf: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Decode a message that begins at `offset`; returns it and the offset behind it.

    `buf` holds single bytes (a memoryview of format "B"). Record sets in the result are slices of
    `buf`; everything else is copied. ProtocolError when the bytes are no such message.
    """
    view = buf if type(buf) is memoryview else memoryview(buf)
    if len(view) - offset > WHOLE_BYTES:
        return _decode_large(cls, view, version, offset, -1)
    return decode_small(cls, view, version, offset)


def decode_small(cls: type[M], view: memoryview, version: int, offset: int) -> tuple[M, int]:
    """Decode as `decode` does, without limits: the caller has compared `view` with `WHOLE_BYTES`.

    Raises ProtocolError.
    """
    decoder = cls._decoders.get(version) or _decoder(cls, version)
    try:
        msg, end = decoder(view, offset, len(view))
    except UNREADABLE as error:
        raise why_unreadable(cls, view, version, offset, error) from None
    return msg, end


def decode_field(cls: type[M], buf: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Decode a message that comes in a field of a request, and is small unless it is hostile.

    As `decode`; ProtocolError also for one of more than `FIELD_WORK_MAX` elements.
    """
    view = buf if type(buf) is memoryview else memoryview(buf)
    if len(view) - offset <= WHOLE_BYTES:
        return decode_small(cls, view, version, offset)
    return _decode_large(cls, view, version, offset, FIELD_WORK_MAX // STEP_WORK)


def _decode_large(
    cls: type[M], view: memoryview, version: int, offset: int, steps_max: int
) -> tuple[M, int]:
    """Decode in as many steps as there are, or as `steps_max` allows."""
    decoded = decode_at_once(cls, view, version, offset)
    if decoded is not None:
        return decoded
    decoding = Decoding(cls, view, version, offset, Allowance(1 << 62), 1 << 62)
    while not decoding.step():
        steps_max -= 1
        if steps_max == 0:
            decoding.stop()
            raise ProtocolError(
                f"elements of a {cls.__name__} of {len(view) - offset} bytes",
                "more than are decoded at once",
                f"0-{FIELD_WORK_MAX}",
            )
    return decoding.message, decoding.end


def _encoder(cls: type[Message], version: int) -> Any:
    if version not in cls.VERSIONS:
        raise EncodeError(f"version of {cls.__name__}", version, str(cls.VERSIONS))
    encoder = compile_encoder(plan_message(cls, version))
    cls._encoders[version] = encoder
    return encoder


def _decoder(cls: type[Message], version: int) -> Any:
    if version not in cls.VERSIONS:
        raise ProtocolError(f"version of {cls.__name__}", version, str(cls.VERSIONS))
    decoder = compile_decoder(plan_message(cls, version))
    cls._decoders[version] = decoder
    return decoder


def _why_unwritable(msg: Message, version: int, error: Exception) -> EncodeError:
    from protocol import twin  # only needed when something is wrong

    try:
        twin.explain_encode(msg, version, _EXPLAINED_FIELDS)
    except EncodeError as exact:
        return exact
    return EncodeError(f"{type(msg).__name__} v{version}", repr(error), "values of the schema")
