"""Encoding and decoding of messages.

An encoder and a decoder are compiled for a class and version at their first use, in a quarter of a
millisecond each, and stored on the class. `protocol.twin` interprets the same schema slowly. It
explains why the compiled code failed, and serves the tests as an oracle.

The decoder checks these limits before it allocates memory:

- A list has at most 1,000,000 elements, and no more than fit into the remaining bytes.
- A tag section has at most 10,000 tagged fields, with ascending tags.
- A string or byte field is no longer than the remaining bytes; a string has at most 32,767.
- A varint has at most five bytes.
- Null is accepted only where the schema allows it.

Invalid UTF-8 in a string becomes U+FFFD, as in Kafka: some clients send such client ids.

`decode` returns when the message is complete. For requests from outside use
`protocol.transport.decode_queue.decode_in_slices`, which pauses; for a message inside a field use
`decode_field`, which refuses long ones. Records of a log are decoded without such limits: a node
must be able to read whatever was committed.
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
"""Most elements of a message inside a field: it is decoded without a pause."""
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
    """Encode a message.

    Raises:
        EncodeError: a value is out of range, or the version does not have its field.
    """
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

    Record sets of more than a few hundred bytes are parts of their own and are not copied. The
    first part is a new bytearray that begins with `prefix`: the caller can write the frame's length
    into it.

    Raises:
        EncodeError: a value is out of range, or the version does not have its field.
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
    """Decode the message that begins at `offset`.

    Args:
        buf: bytes, or a memoryview of format "B". Record sets in the result are slices of it; all
            other values are copied.

    Returns:
        The message and the offset of its end.

    Raises:
        ProtocolError: the bytes are not a message of this class and version.
    """
    view = buf if type(buf) is memoryview else memoryview(buf)
    if len(view) - offset > WHOLE_BYTES:
        return _decode_large(cls, view, version, offset, -1)
    return decode_small(cls, view, version, offset)


def decode_small(cls: type[M], view: memoryview, version: int, offset: int) -> tuple[M, int]:
    """Decode a message like `decode`, in one step.

    The caller has checked that no more than `WHOLE_BYTES` follow `offset`.

    Raises:
        ProtocolError: the bytes are not a message of this class and version.
    """
    decoder = cls._decoders.get(version) or _decoder(cls, version)
    try:
        msg, end = decoder(view, offset, len(view))
    except UNREADABLE as error:
        raise why_unreadable(cls, view, version, offset, error) from None
    return msg, end


def decode_field(cls: type[M], buf: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Decode a message inside a field of a request; honest clients send only small ones.

    Raises:
        ProtocolError: the bytes are not such a message, or it has more than about
            `FIELD_WORK_MAX` elements.
    """
    view = buf if type(buf) is memoryview else memoryview(buf)
    if len(view) - offset <= WHOLE_BYTES:
        return decode_small(cls, view, version, offset)
    return _decode_large(cls, view, version, offset, FIELD_WORK_MAX // STEP_WORK)


def _decode_large(
    cls: type[M], view: memoryview, version: int, offset: int, steps_max: int
) -> tuple[M, int]:
    """Decode in at most `steps_max` steps; -1 means no limit."""
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
    from protocol import twin  # imported only to explain an error

    try:
        twin.explain_encode(msg, version, _EXPLAINED_FIELDS)
    except EncodeError as exact:
        return exact
    return EncodeError(f"{type(msg).__name__} v{version}", repr(error), "values of the schema")
