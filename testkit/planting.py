"""Planted bugs: lines of the product that are other ones for the length of a run.

A bug is text for text: the code of a function with one piece of its source replaced is compiled and
put in the place of its code, so that every reference to the function has the bug, and none after
the run. A piece that is not there exactly once is refused: the table follows the product.
"""

from __future__ import annotations
import __future__

import contextlib
import functools
import importlib
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any


class BadPatch(ValueError):
    """The piece of source that a bug replaces is not there, or there more than once."""


@dataclass(frozen=True)
class Patch:
    """`place` is `module:function` or `module:Class.method`; `old` stands there once."""

    place: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """A planted bug.

    Args:
        family: what part of the product it is in.
        text: what is wrong, for people.
        promise: the codes of promises that it breaks, as a regular expression.
        patches: the lie, and the guards behind it that would hide it.
        situation: what no cluster of this program does to itself, and the bug needs: it is there
            without the bug, too.
    """

    name: str
    family: str
    text: str
    promise: str
    patches: tuple[Patch, ...]
    situation: tuple[Patch, ...] = ()

    def planted(self) -> AbstractContextManager[None]:
        """The bug is in the product inside. Raises BadPatch."""
        return _applied((*self.situation, *self.patches))

    def without(self) -> AbstractContextManager[None]:
        """Inside all is as it is with the bug, but for the bug."""
        return _applied(self.situation)


@contextlib.contextmanager
def _applied(patches: Iterable[Patch]) -> Iterator[None]:
    places: dict[str, tuple[tuple[str, str], ...]] = {}
    for patch in patches:
        places[patch.place] = (*places.get(patch.place, ()), (patch.old, patch.new))
    with contextlib.ExitStack() as stack:
        for place, texts in places.items():
            function = _function(place)
            before, function.__code__ = function.__code__, _code(place, texts)
            stack.callback(setattr, function, "__code__", before)
        yield


def bug(
    name: str,
    family: str,
    promise: str,
    text: str,
    *patches: tuple[str, str, str],
    situation: Sequence[tuple[str, str, str]] = (),
) -> Bug:
    """A bug; each patch is a place, what stands there, and what instead."""
    planted, given = (tuple(Patch(*one) for one in each) for each in (patches, situation))
    return Bug(name, family, text, promise, planted, given)


def _function(place: str) -> FunctionType:
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    found = getattr(found, "fget", None) or getattr(found, "__func__", found)
    if not isinstance(found, FunctionType):
        raise BadPatch(f"{place} is no function")
    return found


@functools.cache
def _code(place: str, texts: tuple[tuple[str, str], ...]) -> CodeType:
    function = _function(place)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in texts:
        if source.count(old) != 1:
            raise BadPatch(f"{place} has {old!r} {source.count(old)} times")
        source = source.replace(old, new)
    free = function.__code__.co_freevars
    if free:  # the class cell of super()
        source = f"def around({', '.join(free)}):\n{textwrap.indent(source, '    ')}"
    flags = __future__.annotations.compiler_flag
    compiled = compile(source, f"<planted in {place}>", "exec", flags, dont_inherit=True)
    code = _named(compiled, function.__name__)
    if code is None or code.co_freevars != free:
        raise BadPatch(f"{place} does not compile to one function")
    return code


def _named(code: CodeType, name: str) -> CodeType | None:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_name == name:
                return one
            found = _named(one, name) if one.co_name == "around" else None
            if found is not None:
                return found
    return None
