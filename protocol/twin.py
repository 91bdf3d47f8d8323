"""The slow twin of the codec: an interpreter of the schema that is written for readability.

It shares only the schema classes with the compiler. Tests compare the results of both. In
production it runs only to explain why the compiled code refused a message.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any, TypeVar

from protocol.errors import EncodeError, ProtocolError
from protocol.schema import Buffer, Field, Kind, Message, Struct, parse_versions

M = TypeVar("M", bound=Message)

MAX_STRING_BYTES = 0x7FFF
MAX_LENGTH = 0x7FFFFFFF
MAX_ELEMENTS = 1_000_000
MAX_TAGS = 10_000
_NULL = object()


class _TooFar(Exception):
    """The limit of examined fields was reached."""


def encode(msg: Message, version: int) -> bytes:
    """Encode a message.

    Raises:
        EncodeError: a field cannot be encoded; the error names it.
    """
    cls = type(msg)
    if version not in cls.VERSIONS:
        raise EncodeError(f"version of {cls.__name__}", version, str(cls.VERSIONS))
    return _Writer(version, version in cls.FLEXIBLE).struct(msg, f"{cls.__name__} v{version}")


def decode(cls: type[M], buf: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Decode the message at `offset`.

    Returns:
        The message and the offset of its end.

    Raises:
        ProtocolError: a field cannot be decoded; the error names it.
    """
    if version not in cls.VERSIONS:
        raise ProtocolError(f"version of {cls.__name__}", version, str(cls.VERSIONS))
    reader = _Reader(memoryview(buf), offset, version, version in cls.FLEXIBLE)
    msg: Any = reader.struct(cls, f"{cls.__name__} v{version}")
    return msg, reader.pos


def explain(cls: type[Message], buf: Buffer, version: int, offset: int, fields_max: int) -> None:
    """Raise the ProtocolError of `decode` if its cause is within the first fields.

    The sender chooses the size of a frame, and the twin is slow. Therefore it examines at most
    `fields_max` fields and elements, and copies nothing.
    """
    reader = _Reader(memoryview(buf), offset, version, version in cls.FLEXIBLE, fields_max)
    with suppress(_TooFar):
        reader.struct(cls, f"{cls.__name__} v{version}")


def explain_encode(msg: Message, version: int, fields_max: int) -> None:
    """Raise the EncodeError of `encode` if its cause is within the first `fields_max` fields."""
    cls = type(msg)
    writer = _Writer(version, version in cls.FLEXIBLE, fields_max)
    with suppress(_TooFar):
        writer.struct(msg, f"{cls.__name__} v{version}")


def _exists(f: Field, version: int) -> bool:
    return version in parse_versions(f.versions)


def _nullable(f: Field, version: int) -> bool:
    return version in parse_versions(f.nullable)


def _is_default(cls: type[Struct], f: Field, value: Any) -> bool:
    if f.default is None or value is None:
        return value is f.default
    return bool(value == f.fresh_default(cls))


class _Writer:
    def __init__(self, version: int, flexible: bool, fields_max: int = -1) -> None:
        self.version = version
        self.flexible = flexible
        self.fields_left = fields_max

    def struct(self, value: Any, path: str) -> bytes:
        if not isinstance(value, Struct):
            raise EncodeError(path, value, "a struct")
        cls = type(value)
        out = b""
        tags: dict[int, bytes] = {}
        for f in cls.FIELDS:
            item, where = getattr(value, f.name), f"{path}.{f.name}"
            if not _exists(f, self.version):
                if not f.ignorable and not _is_default(cls, f, item):
                    raise EncodeError(where, item, f"only in versions {f.versions}")
            elif f.tag is None:
                out += self.field(f, item, where)
            elif not _is_default(cls, f, item):
                tags[f.tag] = self.field(f, item, where)
        unknown = value.unknown_tags or {}
        if not self.flexible:
            if unknown:
                raise EncodeError(f"{path}.unknown_tags", unknown, "none in this version")
            return out
        if tags.keys() & unknown.keys():
            raise EncodeError(f"{path}.unknown_tags", unknown, f"none of {sorted(tags)}")
        return out + self.tags(tags | unknown, path)

    def tags(self, tags: dict[int, bytes], path: str) -> bytes:
        out = self.uvarint(len(tags), f"{path} tag count")
        for tag, payload in sorted(tags.items()):
            out += self.uvarint(tag, f"{path} tag")
            out += self.uvarint(len(payload), f"{path} size of tag {tag}") + payload
        return out

    def field(self, f: Field, value: Any, path: str) -> bytes:
        compact = self.flexible
        if f.flexible is not None:
            compact = self.version in parse_versions(f.flexible)
        if value is None and not _nullable(f, self.version):
            raise EncodeError(path, value, "null is not allowed")
        if f.kind.name == "struct" and _nullable(f, self.version):
            null = b"\xff" if f.tag is None else b"\0"
            return null if value is None else b"\x01" + self.struct(value, path)
        return self.value(f.kind, value, compact, path)

    def value(self, kind: Kind, value: Any, compact: bool, path: str) -> bytes:
        if self.fields_left == 0:
            raise _TooFar
        self.fields_left -= 1
        if kind.name == "struct":
            return self.struct(value, path)
        if kind.code:
            return self.fixed(kind, value, path)
        if value is None:
            return self.length(kind, None, compact, path)
        if kind.name == "array":
            return self.array(kind, value, compact, path)
        return self.blob(kind, value, compact, path)

    def fixed(self, kind: Kind, value: Any, path: str) -> bytes:
        if kind.name == "uuid" and (not isinstance(value, bytes | bytearray) or len(value) != 16):
            raise EncodeError(path, value, "16 bytes")
        try:
            return struct.pack(">" + kind.code, value)
        except (struct.error, OverflowError, TypeError):
            raise EncodeError(path, value, f"a value of {kind.name}") from None

    def array(self, kind: Kind, value: Any, compact: bool, path: str) -> bytes:
        assert kind.element is not None
        if not isinstance(value, list | tuple):
            raise EncodeError(path, value, "a list")
        out = self.length(kind, len(value), compact, path)
        for index, item in enumerate(value):
            where = f"{path}[{index}]"
            if item is None:
                raise EncodeError(where, item, "null is not allowed")
            out += self.value(kind.element, item, compact, where)
        return out

    def blob(self, kind: Kind, value: Any, compact: bool, path: str) -> bytes:
        if kind.name == "string":
            if not isinstance(value, str):
                raise EncodeError(path, value, "a string")
            try:
                value = value.encode("utf-8")
            except UnicodeEncodeError:
                raise EncodeError(path, value, "a string encodable as UTF-8") from None
            if len(value) > MAX_STRING_BYTES:
                raise EncodeError(f"length of {path}", len(value), f"0-{MAX_STRING_BYTES}")
        elif kind.name == "records" and isinstance(value, list):
            value = b"".join(value)
        if not isinstance(value, bytes | bytearray | memoryview):
            raise EncodeError(path, value, "bytes")
        return self.length(kind, len(value), compact, path) + bytes(value)

    def length(self, kind: Kind, length: int | None, compact: bool, path: str) -> bytes:
        if compact:
            return self.uvarint(0 if length is None else length + 1, f"length of {path}")
        return struct.pack(
            ">h" if kind.name == "string" else ">i", -1 if length is None else length
        )

    def uvarint(self, value: int, what: str) -> bytes:
        if not 0 <= value <= MAX_LENGTH:
            raise EncodeError(what, value, f"0-{MAX_LENGTH}")
        out = bytearray()
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)


class _Reader:
    def __init__(
        self, view: memoryview, pos: int, version: int, flexible: bool, fields_max: int = -1
    ) -> None:
        self.view = view
        self.pos = pos
        self.version = version
        self.flexible = flexible
        self.explains = fields_max >= 0
        self.fields_left = fields_max

    def count(self) -> None:
        """Count a field or element. Raises: _TooFar at the limit."""
        if self.fields_left == 0:
            raise _TooFar
        self.fields_left -= 1

    def take(self, size: int, what: str) -> memoryview:
        left = len(self.view) - self.pos
        if not 0 <= size <= left:
            raise ProtocolError(f"bytes for {what} at {self.pos}", size, f"0-{left}")
        self.pos += size
        return self.view[self.pos - size : self.pos]

    def struct(self, cls: type[Struct], path: str) -> Struct:
        value = cls()
        for f in cls.FIELDS:
            if f.tag is None and _exists(f, self.version):
                setattr(value, f.name, self.field(cls, f, f"{path}.{f.name}"))
        if self.flexible:
            self.tags(value, path)
        return value

    def tags(self, value: Struct, path: str) -> None:
        known = {f.tag: f for f in value.FIELDS if f.tag is not None and _exists(f, self.version)}
        unknown: dict[int, bytes] = {}
        last = -1
        count = self.uvarint(f"{path} tag count")
        if count > MAX_TAGS:
            raise ProtocolError(f"{path} tag count", count, f"0-{MAX_TAGS}")
        for _ in range(count):
            self.count()
            tag = self.uvarint(f"{path} tag")
            if tag <= last:
                raise ProtocolError(f"{path} tag", tag, f"more than {last}")
            last = tag
            size = self.uvarint(f"{path} size of tag {tag}")
            payload = self.take(size, f"{path} tag {tag}")
            if tag not in known:
                unknown[tag] = b"" if self.explains else bytes(payload)
                continue
            f = known[tag]
            self.pos -= size
            end = self.pos + size
            setattr(value, f.name, self.field(type(value), f, f"{path}.{f.name}"))
            if self.pos != end:
                raise ProtocolError(f"{path} size of tag {tag}", size, str(size + self.pos - end))
        value.unknown_tags = unknown or None

    def field(self, cls: type[Struct], f: Field, path: str) -> Any:
        compact = self.flexible
        if f.flexible is not None:
            compact = self.version in parse_versions(f.flexible)
        value = self.value(cls, f, f.kind, compact, path)
        return None if value is _NULL else value

    def value(self, cls: type[Struct], f: Field, kind: Kind, compact: bool, path: str) -> Any:
        self.count()
        if kind.code:
            [value] = struct.unpack(">" + kind.code, self.take(kind.size_bytes, path))
            return value
        if kind.name == "struct":
            if kind is f.kind and _nullable(f, self.version):
                present, null = self.take(1, path)[0], 0xFF if f.tag is None else 0
                if present == null:
                    return _NULL
                if present != 1:
                    raise ProtocolError(f"presence of {path}", present, f"1 or {null}")
            return self.struct(cls.struct_class(kind), path)
        length = self.length(kind, compact, path)
        if length is None:
            if kind is f.kind and _nullable(f, self.version):
                return _NULL
            raise ProtocolError(path, None, "null is not allowed")
        if kind.name == "array":
            return self.array(cls, f, kind, compact, path, length)
        return self.blob(kind, path, length)

    def array(
        self, cls: type[Struct], f: Field, kind: Kind, compact: bool, path: str, length: int
    ) -> list[Any]:
        assert kind.element is not None
        left = len(self.view) - self.pos
        smallest = self.smallest(cls, kind.element, compact)
        if length * smallest > left:
            raise ProtocolError(f"elements of {path}", length, f"0-{left // smallest}")
        if length > MAX_ELEMENTS:
            raise ProtocolError(f"elements of {path}", length, f"0-{MAX_ELEMENTS}")
        return [
            self.value(cls, f, kind.element, compact, f"{path}[{index}]") for index in range(length)
        ]

    def blob(self, kind: Kind, path: str, length: int) -> Any:
        if kind.name == "string" and length > MAX_STRING_BYTES:
            raise ProtocolError(f"length of {path}", length, f"0-{MAX_STRING_BYTES}")
        payload = self.take(length, path)
        if kind.name == "records" or self.explains:
            return payload
        if kind.name == "bytes":
            return bytes(payload)
        return str(payload, "utf-8", "replace")

    def length(self, kind: Kind, compact: bool, path: str) -> int | None:
        what = f"length of {path}"
        if compact:
            length = self.uvarint(what) - 1
        elif kind.name == "string":
            [length] = struct.unpack(">h", self.take(2, what))
        else:
            [length] = struct.unpack(">i", self.take(4, what))
        if length < -1:
            raise ProtocolError(what, length, f"0-{len(self.view) - self.pos}")
        return None if length == -1 else length

    def uvarint(self, what: str) -> int:
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > MAX_LENGTH:
                    raise ProtocolError(what, value, f"0-{MAX_LENGTH}")
                return value
        raise ProtocolError(what, "more than 5 bytes", "5 bytes")

    def smallest(self, cls: type[Struct], kind: Kind, compact: bool) -> int:
        """Return the fewest bytes that a value of this kind takes."""
        if kind.code:
            return kind.size_bytes
        if kind.name == "struct":
            inner = cls.struct_class(kind)
            return self.flexible + sum(
                1
                if f.kind.name == "struct" and _nullable(f, self.version)
                else self.smallest(inner, f.kind, compact)
                for f in inner.FIELDS
                if f.tag is None and _exists(f, self.version)
            )
        if compact:
            return 1
        return 2 if kind.name == "string" else 4
