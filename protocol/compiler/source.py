"""Building blocks of generated source: lines with an indent, names, packers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SMALL_ARRAY = 16  # shorter lists of numbers have a packer that was made in advance


class Malformed(Exception):
    """Generated code raises it; the public functions replace it by an error that explains more."""


class Beyond(Malformed):
    """A limit was exceeded; its arguments are those of `ProtocolError`: subject, value, allowed."""


class TooLong(Exception):
    """A bounded decoder raises it for a message that needs more work than it may do at once."""


class Source:
    """Source under construction, with the objects it refers to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"Malformed": Malformed, "Beyond": Beyond}
        self._indent = 1
        self._names = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Emit `head` and indent the lines that follow."""
        self.emit(head)
        self._indent += 1
        yield
        self._indent -= 1

    def fresh(self, stem: str) -> str:
        """Return a local name that this source does not use yet."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """Return a global name for an object; the same object has one name per stem."""
        for name, known in self.scope.items():
            if known is value and name.startswith(stem):
                return name
        name = f"{stem}_{len(self.scope)}"
        self.scope[name] = value
        return name

    def packer(self, direction: str, codes: str) -> str:
        """Return the name of `pack` or `unpack_from` of a big-endian `struct`."""
        name = f"{direction}_{codes.replace('?', 'bool')}"
        if name not in self.scope:
            layout = struct.Struct(">" + codes)
            self.scope[name] = layout.pack if direction == "pack" else layout.unpack_from
        return name

    def array_packers(self, direction: str, code: str) -> str:
        """Return the name of a list of packers for 0, 1, ... SMALL_ARRAY - 1 numbers."""
        name = f"{direction}s_{code}"
        if name not in self.scope:
            self.scope[name] = _array_packers(direction, code)
        return name

    def function(self, signature: str) -> Any:
        """Compile the lines as the body of a function and return the function."""
        text = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        name = signature.partition("(")[0]
        exec(compile(text, f"<generated {name}>", "exec"), self.scope)
        return self.scope[name]


def _array_packers(direction: str, code: str) -> list[Any]:
    key = (direction, code)
    if key not in _ARRAY_PACKERS:
        layouts = [struct.Struct(f">{count}{code}") for count in range(SMALL_ARRAY)]
        _ARRAY_PACKERS[key] = [
            layout.pack if direction == "pack" else layout.unpack_from for layout in layouts
        ]
    return _ARRAY_PACKERS[key]


_ARRAY_PACKERS: dict[tuple[str, str], list[Any]] = {}


def size_of(codes: str) -> int:
    """Return the size in bytes of a big-endian `struct` with these codes."""
    return struct.calcsize(">" + codes)
