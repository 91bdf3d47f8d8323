"""The wire layout of one struct in one version; the encoder and the decoders use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from protocol.schema import FRESH, Field, Kind, Message, Struct, parse_versions

# `struct` characters of the length prefixes; compact lengths begin with one byte.
COMPACT_PREFIX = "B"
STRING_PREFIX = "h"
LONG_PREFIX = "i"

MAX_STRING_BYTES = 0x7FFF
MAX_LENGTH = 0x7FFFFFFF

# Memory of decoded values beyond the bytes of their content, for CPython's objects, rounded up.
# Numbers count as uncached objects.
SLOT_BYTES = 9  # a list allocates up to an eighth more slots than it has elements
NUMBER_BYTES = 32
STRING_BYTES = 64
BYTES_BYTES = 40
VIEW_BYTES = 192
LIST_BYTES = 72
STRUCT_BYTES = 40  # including the slot of `unknown_tags`
FIELD_BYTES = 8
TAG_BYTES = 160


@dataclass(slots=True)
class PlannedField:
    """A field in one version; if it is `compact`, its length plus one is an unsigned varint."""

    name: str
    kind: Kind
    nullable: bool
    compact: bool
    default: Any
    ignorable: bool
    tag: int | None
    struct: Plan | None  # for a struct, or for the elements of a list of structs

    @property
    def prefix(self) -> str:
        """The `struct` character of the length or presence prefix; empty without a prefix."""
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
        """The byte of a null struct; the byte 1 precedes a struct that is present.

        The presence of a tagged struct is an unsigned varint, of any other a signed byte.
        """
        return 0xFF if self.tag is None else 0

    def min_size_bytes(self) -> int:
        """Return the fewest bytes that this field takes on the wire."""
        if self.kind.code:
            return self.kind.size_bytes
        if self.kind.name == "struct" and not self.nullable:
            assert self.struct is not None
            return self.struct.min_size_bytes()
        return {"B": 1, "h": 2, "i": 4}[self.prefix]

    def object_bytes(self) -> int:
        """Return the memory in bytes of a value, without its content, elements and slot."""
        if self.kind.name == "struct":
            assert self.struct is not None
            return self.struct.object_bytes()
        if self.kind.name == "bool":
            return 0
        if len(self.kind.code) == 1:
            return NUMBER_BYTES
        sizes = {"array": LIST_BYTES, "string": STRING_BYTES, "records": VIEW_BYTES}
        return sizes.get(self.kind.name, BYTES_BYTES + self.kind.size_bytes)

    def default_bytes(self) -> int:
        """Return the memory in bytes of the default; 0 if all objects share one."""
        if self.default is not FRESH:
            return 0
        return LIST_BYTES if self.struct is None or self.kind.element else self.object_bytes()

    def element(self) -> PlannedField:
        """Return the plan of a list's elements, which are never null."""
        element = self.kind.element
        assert element is not None
        return PlannedField(self.name, element, False, self.compact, None, False, None, self.struct)


@dataclass(slots=True)
class Plan:
    """A struct in one version: fields in wire order, tagged fields by tag, and absent fields."""

    cls: type[Struct]
    flexible: bool
    plain: list[PlannedField] = field(default_factory=list)
    tagged: list[PlannedField] = field(default_factory=list)
    absent: list[PlannedField] = field(default_factory=list)

    def min_size_bytes(self) -> int:
        """Return the fewest bytes that this struct takes on the wire."""
        return sum(f.min_size_bytes() for f in self.plain) + self.flexible

    def object_bytes(self) -> int:
        """Return the memory in bytes of an object and its fields, without content and elements.

        A tagged field counts as its default, because a sent one has bytes of its own in the frame.
        """
        fields = len(self.plain) + len(self.tagged) + len(self.absent)
        values = sum(f.object_bytes() for f in self.plain)
        values += sum(f.default_bytes() for f in self.tagged + self.absent)
        return STRUCT_BYTES + FIELD_BYTES * fields + values


def plan_message(cls: type[Message], version: int) -> Plan:
    """Return the layout of a message; the caller has checked that the class has `version`."""
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
