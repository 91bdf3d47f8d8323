"""JSON form of messages, as in Kafka's tools and its `quorum-state` file.

Field names are camelCase, UUIDs text, bytes base64, 64-bit integers plain numbers. Fields that the
version lacks and tagged fields with their default are left out. A record set is represented by its
size alone (`recordsSizeInBytes`), so a message with records cannot be read back from JSON.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Any, TypeVar, cast

from protocol.errors import EncodeError, ProtocolError
from protocol.ids import uuid_from_text, uuid_to_text
from protocol.schema import Field, Kind, Message, Struct, parse_versions

M = TypeVar("M", bound=Message)

_INTEGER_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def camel(name: str) -> str:
    """Return the JSON name of a field: throttle_time_ms -> throttleTimeMs."""
    name = re.sub(r"^kraft", "k_raft", name)
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def to_json(msg: Message, version: int) -> dict[str, Any]:
    """Return a message as JSON object. Raises EncodeError if the version cannot represent a
    value."""
    if version not in msg.VERSIONS:
        raise EncodeError(f"version of {type(msg).__name__}", version, str(msg.VERSIONS))
    return _struct_to_json(msg, version)


def from_json(cls: type[M], node: object, version: int) -> M:
    """Build a message from a parsed JSON object.

    Names that the version does not have are ignored. Raises ProtocolError if a field is missing or
    has a value of the wrong type.
    """
    if version not in cls.VERSIONS:
        raise ProtocolError(f"version of {cls.__name__}", version, str(cls.VERSIONS))
    return cast(M, _struct_from_json(cls, node, version, cls.__name__))


def _is_default(cls: type[Struct], f: Field, value: Any) -> bool:
    if value is None or f.default is None:
        return value is f.default
    return bool(value == f.fresh_default(cls))


def _struct_to_json(value: Struct, version: int) -> dict[str, Any]:
    cls = type(value)
    node: dict[str, Any] = {}
    for f in cls.FIELDS:
        item = getattr(value, f.name)
        if version not in parse_versions(f.versions):
            if not f.ignorable and not _is_default(cls, f, item):
                raise EncodeError(f"{cls.__qualname__}.{f.name}", item, f"versions {f.versions}")
        elif f.tag is not None and _is_default(cls, f, item):
            continue
        elif item is None and version not in parse_versions(f.nullable):
            raise EncodeError(f"{cls.__qualname__}.{f.name}", item, "null is not allowed")
        elif f.kind.name == "records" and item is not None:
            pieces = item if isinstance(item, list) else [item]
            node[camel(f.name) + "SizeInBytes"] = sum(map(len, pieces))
        else:
            node[camel(f.name)] = _value_to_json(f.kind, item, version)
    return node


def _value_to_json(kind: Kind, value: Any, version: int) -> Any:
    if value is None:
        return None
    if kind.element is not None:
        return [_value_to_json(kind.element, item, version) for item in value]
    if kind.name == "struct":
        return _struct_to_json(value, version)
    if kind.name == "uuid":
        return uuid_to_text(value)
    if kind.name == "bytes":
        return b64encode(value).decode("ascii")
    return value


def _struct_from_json(cls: type[Struct], node: object, version: int, path: str) -> Struct:
    if not isinstance(node, dict):
        raise ProtocolError(path, node, "a JSON object")
    values: dict[str, Any] = {}
    for f in cls.FIELDS:
        if version not in parse_versions(f.versions):
            continue
        name, where = camel(f.name), f"{path}.{camel(f.name)}"
        if name not in node:
            if f.tag is None:
                raise ProtocolError(where, None, "a value; the field is missing")
            continue
        nullable = version in parse_versions(f.nullable)
        values[f.name] = _value_from_json(cls, f.kind, node[name], version, where, nullable)
    return cls(**values)


def _value_from_json(
    cls: type[Struct], kind: Kind, node: Any, version: int, path: str, nullable: bool
) -> Any:
    if node is None:
        if nullable:
            return None
        raise ProtocolError(path, node, "null is not allowed")
    if kind.element is not None:
        if not isinstance(node, list):
            raise ProtocolError(path, node, "a JSON array")
        return [
            _value_from_json(cls, kind.element, item, version, f"{path}[{index}]", False)
            for index, item in enumerate(node)
        ]
    if kind.name == "struct":
        return _struct_from_json(cls.struct_class(kind), node, version, path)
    return _scalar_from_json(kind, node, path)


def _scalar_from_json(kind: Kind, node: Any, path: str) -> Any:
    if kind.name in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[kind.name]
        if type(node) is not int or not low <= node <= high:
            raise ProtocolError(path, node, f"an integer, {low} to {high}")
        return node
    wanted: Any = {"bool": bool, "float64": (int, float)}.get(kind.name, str)
    if not isinstance(node, wanted):
        raise ProtocolError(path, node, f"a JSON value for {kind.name}")
    try:
        if kind.name == "uuid":
            return uuid_from_text(node)
        if kind.name == "bytes":
            return b64decode(node, validate=True)
    except (ValueError, Base64Error):
        raise ProtocolError(path, node, f"the text of a {kind.name}") from None
    return node
