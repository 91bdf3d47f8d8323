"""Planted bugs: replacements in the source of the product for the length of one run.

A patch replaces one piece of a function's source, compiles the result, and swaps the code object of
the function. So every reference to the function has the bug during the run, and none after it. A
piece that does not occur exactly once is refused, so that the table follows the product.
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
    """The piece of source to replace does not occur, or occurs more than once."""


@dataclass(frozen=True)
class Patch:
    """One replacement: `place` is `module:function` or `module:Class.method`, whose source contains
    `old` exactly once."""

    place: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """A planted bug.

    Args:
        family: the part of the product that has the bug.
        text: the wrong behaviour, in one line.
        promise: the codes of the promises that it breaks, as a regular expression.
        patches: the bug, and the removal of guards that would hide it.
        situation: patches for a situation that the bug needs and no Kraftbox cluster creates by
            itself. They apply with and without the bug.
    """

    name: str
    family: str
    text: str
    promise: str
    patches: tuple[Patch, ...]
    situation: tuple[Patch, ...] = ()

    def planted(self) -> AbstractContextManager[None]:
        """Plant the bug inside the block. Raises: BadPatch if a patch does not apply."""
        return _applied((*self.situation, *self.patches))

    def without(self) -> AbstractContextManager[None]:
        """Apply the situation alone inside the block."""
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
    """Return a bug; each patch is a place, the old piece of source, and the new one."""
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
