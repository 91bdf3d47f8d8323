"""Every message class, and Hypothesis strategies for their values."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from hypothesis import strategies as st

import protocol.control
import protocol.internal
import protocol.messages
import protocol.metadata
from protocol import header_schemas
from protocol.schema import Field, Kind, Message, SchemaMeta, Struct, parse_versions

# Number of values per message and version; a soak run sets more.
EXAMPLES = int(os.environ.get("KRAFTBOX_CODEC_EXAMPLES", "5"))

_INTEGERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["x" * 126, "x" * 127, "x" * 128, "\u00e9" * 64]
)
_BYTES = st.binary(max_size=12) | st.sampled_from([bytes(127), bytes(600)])
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    **_INTEGERS,
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    "string": _TEXT,
    "bytes": _BYTES,
    "records": _BYTES,
}


@cache
def message_classes() -> tuple[type[Message], ...]:
    """Return all classes that are encoded on their own."""
    modules = [header_schemas]
    for package in (protocol.messages, protocol.metadata, protocol.control, protocol.internal):
        for found in iter_modules(package.__path__):
            modules.append(import_module(f"{package.__name__}.{found.name}"))
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, SchemaMeta)
        and issubclass(value, Message)
        and value.__module__ == module.__name__
    )


def message_versions() -> list[tuple[type[Message], int]]:
    """Return every class with each of its versions."""
    return [(cls, version) for cls in message_classes() for version in cls.VERSIONS.each()]


def name_of(case: object) -> str:
    """Return the test id of a class or a version."""
    return case.__name__ if isinstance(case, type) else f"v{case}"


def values_of(
    cls: type[Struct],
    version: int,
    *,
    flexible: bool,
    scalars: dict[str, st.SearchStrategy[Any]] | None = None,
    by_name: dict[str, st.SearchStrategy[Any]] | None = None,
    unknown_tags: bool = False,
) -> st.SearchStrategy[Any]:
    """Return values that `version` can encode; fields it lacks keep their default.

    scalars and by_name replace the strategy of a wire type or of fields with a certain name.
    unknown_tags adds tags that no schema knows.
    """
    kinds = SCALARS | (scalars or {})
    names = by_name or {}

    def of_kind(owner: type[Struct], f: Field, kind: Kind) -> st.SearchStrategy[Any]:
        if kind.element is not None:
            return st.lists(of_kind(owner, f, kind.element), max_size=3)
        if kind.name == "struct":
            return of_struct(owner.struct_class(kind))
        return names.get(f.name, kinds[kind.name])

    def of_struct(owner: type[Struct]) -> st.SearchStrategy[Any]:
        arguments: dict[str, st.SearchStrategy[Any]] = {}
        for f in owner.FIELDS:
            if version not in parse_versions(f.versions):
                continue
            strategy = of_kind(owner, f, f.kind)
            if version in parse_versions(f.nullable):
                strategy = st.none() | strategy
            if f.tag is not None:
                strategy = st.builds(f.fresh_default, st.just(owner)) | strategy
            arguments[f.name] = strategy
        if unknown_tags and flexible:
            tags = st.dictionaries(st.integers(100, 20_000), st.binary(max_size=5), max_size=2)
            arguments["unknown_tags"] = st.none() | tags.map(lambda found: found or None)
        return st.builds(owner, **arguments)

    return of_struct(cls)


def messages_of(cls: type[Message], version: int, **choices: Any) -> st.SearchStrategy[Any]:
    """Return values of a message in a version; `choices` as in `values_of`."""
    return values_of(cls, version, flexible=version in cls.FLEXIBLE, **choices)
