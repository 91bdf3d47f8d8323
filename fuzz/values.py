"""Random values of message classes, without Hypothesis: fast, and from one seed."""

from __future__ import annotations

import random
from typing import Any

from protocol.schema import Field, Kind, Message, Struct, parse_versions

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS = {"uint16": 16, "uint32": 32}
_WORDS = ("", "t", "g", "topic", "a.b", "..", "x" * 127, "é" * 70, "\x00", "__consumer_offsets")
_SMALL = (0, 1, -1, 2, 3, 5)


def random_message(rng: random.Random, cls: type[Message], version: int) -> Message:
    """Return a random message that `version` can encode."""
    return _struct(rng, cls, version)  # type: ignore[return-value]


def _struct(rng: random.Random, cls: type[Struct], version: int) -> Struct:
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if version not in parse_versions(field.versions):
            continue
        if field.tag is not None and rng.random() < 0.5:
            continue
        if version in parse_versions(field.nullable) and rng.random() < 0.2:
            values[field.name] = None
        else:
            values[field.name] = _value(rng, cls, field, field.kind, version)
    return cls(**values)


def _value(rng: random.Random, owner: type[Struct], field: Field, kind: Kind, version: int) -> Any:
    if kind.element is not None:
        count = rng.choice((0, 1, 1, 2, 3))
        return [_value(rng, owner, field, kind.element, version) for _ in range(count)]
    if kind.name == "struct":
        return _struct(rng, owner.struct_class(kind), version)
    return _scalar(rng, kind.name)


def _scalar(rng: random.Random, kind: str) -> Any:
    if kind in _BITS:
        if rng.random() < 0.7:
            return rng.choice(_SMALL)
        half = 1 << (_BITS[kind] - 1)
        return rng.randint(-half, half - 1)
    if kind in _UNSIGNED_BITS:
        return rng.randrange(1 << _UNSIGNED_BITS[kind])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.uniform(-1e9, 1e9)
    if kind == "uuid":
        return rng.choice((bytes(16), rng.randbytes(16)))
    if kind == "string":
        return rng.choice(_WORDS)
    return rng.randbytes(rng.choice((0, 1, 20, 130)))
