"""The wire layout of one struct in one version, shared by both compilers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from protocol.schema import Field, Kind, Message, Struct, parse_versions

# `struct` characters of the length prefixes; compact lengths begin with one byte.
COMPACT_PREFIX = "B"
STRING_PREFIX = "h"
LONG_PREFIX = "i"

MAX_STRING_BYTES = 0x7FFF
MAX_LENGTH = 0x7FFFFFFF


@dataclass(slots=True)
class PlannedField:
    """A field in one version. `compact` says that its length is an unsigned varint plus one."""

    name: str
    kind: Kind
    nullable: bool
    compact: bool
    default: Any
    ignorable: bool
    tag: int | None
    struct: Plan | None  # of a struct, or of the elements of a list of structs

    @property
    def prefix(self) -> str:
        """The `struct` character of the length (or presence) prefix; empty when there is none."""
        name = self.kind.name
        if name == "struct":
            return "B" if self.nullable else ""
        if self.kind.code:
            return ""
        if self.compact:
            return COMPACT_PREFIX
        return STRING_PREFIX if name == "string" else LONG_PREFIX

    @property
    def null_byte(self) -> int:
        """What a null struct is written as; 1 stands before one that is there.

        The presence of a tagged struct is an unsigned varint, that of another a signed byte.
        """
        return 0xFF if self.tag is None else 0

    def min_size_bytes(self) -> int:
        """The fewest bytes this field takes on the wire."""
        if self.kind.code:
            return self.kind.size_bytes
        if self.kind.name == "struct" and not self.nullable:
            assert self.struct is not None
            return self.struct.min_size_bytes()
        return {"B": 1, "h": 2, "i": 4}[self.prefix]

    def element(self) -> PlannedField:
        """The elements of a list, as a field of their own. Elements are never null."""
        element = self.kind.element
        assert element is not None
        return PlannedField(self.name, element, False, self.compact, None, False, None, self.struct)


@dataclass(slots=True)
class Plan:
    """A struct in one version: fields in wire order, tagged fields by tag, and what is absent."""

    cls: type[Struct]
    flexible: bool
    plain: list[PlannedField] = field(default_factory=list)
    tagged: list[PlannedField] = field(default_factory=list)
    absent: list[PlannedField] = field(default_factory=list)

    def min_size_bytes(self) -> int:
        """The fewest bytes this struct takes on the wire."""
        return sum(f.min_size_bytes() for f in self.plain) + self.flexible


def plan_message(cls: type[Message], version: int) -> Plan:
    """Lay out a message; the caller has checked that `version` is one of its versions."""
    return _plan_struct(cls, version, version in cls.FLEXIBLE)


def _plan_struct(cls: type[Struct], version: int, flexible: bool) -> Plan:
    plan = Plan(cls, flexible)
    for f in cls.FIELDS:
        planned = _plan_field(cls, f, version, flexible)
        if version not in parse_versions(f.versions):
            plan.absent.append(planned)
        elif planned.tag is not None:
            plan.tagged.append(planned)
        else:
            plan.plain.append(planned)
    plan.tagged.sort(key=lambda planned: planned.tag or 0)
    return plan


def _plan_field(cls: type[Struct], f: Field, version: int, flexible: bool) -> PlannedField:
    inner = f.kind.element or f.kind
    nested = None
    if inner.struct_name:
        nested = _plan_struct(cls.struct_class(inner), version, flexible)
    compact = flexible if f.flexible is None else version in parse_versions(f.flexible)
    nullable = version in parse_versions(f.nullable)
    return PlannedField(f.name, f.kind, nullable, compact, f.default, f.ignorable, f.tag, nested)
