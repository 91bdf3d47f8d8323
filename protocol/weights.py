"""The weight of a message: approximately the number of steps of its handler.

A struct and an element of a list weigh 1, and 1 more for each 256 bytes of their strings. Record
sets weigh nothing: their handlers limit the work by bytes.

The functions are generated from the schema once per class. Weighing takes a tenth of a microsecond
per struct, and stops when a limit is exceeded. `structs` does not look into a struct without lists
of structs, so it costs next to nothing where the elements are in one list.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from protocol.compiler.source import Source
from protocol.schema import Struct, array, bytes_, int8, string

STEP_BYTES: Final = 256
"""Bytes of a string that weigh as much as an element."""
_SHIFT: Final = STEP_BYTES.bit_length() - 1
_ARRAY: Final = array(int8).name

Weigh: TypeAlias = Callable[[Any, int], int]


def weigh(value: Struct, limit: int) -> int:
    """Return the weight of `value`, or some number above `limit` if it weighs more."""
    return weigher(type(value))(value, limit)


def structs(value: Struct, limit: int) -> int:
    """Return the number of structs in lists, or some number above `limit` if there are more."""
    return struct_counter(type(value))(value, limit)


def length(value: Struct) -> int:
    """Return the number of elements in the struct's own lists."""
    return sum(len(getattr(value, name) or ()) for name in lists(type(value)))


@cache
def lists(cls: type[Struct]) -> tuple[str, ...]:
    """Return the names of the struct's list fields."""
    return tuple(field.name for field in cls.FIELDS if field.kind.name == _ARRAY)


@cache
def weigher(cls: type[Struct]) -> Weigh:
    """Return the function that weighs values of `cls`."""
    source = Source()
    source.emit("n = 1")
    _visit(source, cls, "value")
    source.emit("return n")
    function: Weigh = source.function("weigh(value, limit)")
    return function


@cache
def struct_counter(cls: type[Struct]) -> Weigh:
    """Return the function that is `structs` for values of `cls`."""
    source = Source()
    source.emit("n = 0")
    _count(source, cls, "value")
    source.emit("return n")
    function: Weigh = source.function("count(value, limit)")
    return function


def _count(source: Source, cls: type[Struct], name: str) -> None:
    for field in cls.FIELDS:
        element = field.kind.element
        if element is None or not element.struct_name:
            continue
        inner = cls.struct_class(element)
        items, item = source.fresh("items"), source.fresh("item")
        source.emit(f"{items} = {name}.{field.name}")
        with source.block(f"if {items}:"):
            source.emit(f"n += len({items})")
            with source.block("if n > limit:"):
                source.emit("return n")
            if _has_structs(inner):
                with source.block(f"for {item} in {items}:"):
                    _count(source, inner, item)


def _has_structs(cls: type[Struct]) -> bool:
    elements = (field.kind.element for field in cls.FIELDS)
    return any(element is not None and element.struct_name for element in elements)


def _visit(source: Source, cls: type[Struct], name: str) -> None:
    source.emit("pass")
    for field in cls.FIELDS:
        kind, value = field.kind, f"{name}.{field.name}"
        if kind in (string, bytes_):
            with source.block(f"if {value}:"):
                source.emit(f"n += len({value}) >> {_SHIFT}")
        elif kind.struct_name:
            inner = source.fresh("part")
            source.emit(f"{inner} = {value}")
            with source.block(f"if {inner} is not None:"):
                _visit(source, cls.struct_class(kind), inner)
        elif kind.name == _ARRAY and kind.element is not None:
            items = source.fresh("items")
            source.emit(f"{items} = {value}")
            with source.block(f"if {items}:"):
                source.emit(f"n += len({items})")
                with source.block("if n > limit:"):
                    source.emit("return n")
                if kind.element in (string, bytes_):
                    source.emit(f"n += sum(map(len, {items})) >> {_SHIFT}")
                elif kind.element.struct_name:
                    item = source.fresh("item")
                    with source.block(f"for {item} in {items}:"):
                        _visit(source, cls.struct_class(kind.element), item)
                    with source.block("if n > limit:"):
                        source.emit("return n")
