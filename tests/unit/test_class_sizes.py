"""Size of classes: at most 450 lines and 30 methods, counted with the bases of this repository.

A base counts, because inheritance that only moves lines leaves one object as large as before. A
larger class is composed of smaller ones. class_sizes.txt lists today's larger classes; its numbers
may only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from testkit.syntax import PACKAGES, nodes_of

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 450
METHODS_MAX = 30
FILE = ROOT / "tests/unit/class_sizes.txt"


class Size(NamedTuple):
    """Lines and methods of a class together with its bases."""

    lines: int
    methods: int

    @property
    def is_too_large(self) -> bool:
        return self.lines > LINES_MAX or self.methods > METHODS_MAX

    def exceeds(self, other: Size) -> bool:
        """Return whether lines or methods are above the limit and above the other's."""
        return self.lines > max(other.lines, LINES_MAX) or (
            self.methods > max(other.methods, METHODS_MAX)
        )


class ClassPath(NamedTuple):
    """A class by its module's file and its name."""

    path: str
    name: str


class Found(NamedTuple):
    """A class, and the bases that may be classes of this repository."""

    node: ast.ClassDef
    bases: tuple[ClassPath, ...]


def module_paths(module: str) -> tuple[str, str]:
    """Return the files that a module may have."""
    path = module.replace(".", "/")
    return f"{path}.py", f"{path}/__init__.py"


def base_paths(node: ast.ClassDef, path: str, imported: Mapping[str, str]) -> Iterator[ClassPath]:
    """Yield the possible paths of a class's bases; `imported` has full names by local ones."""
    for base in node.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        first, _, rest = ast.unparse(named).partition(".")
        if first not in imported and not rest:
            yield ClassPath(path, first)
            continue
        full = ".".join(filter(None, (imported.get(first, first), rest)))
        module, _, name = full.rpartition(".")
        yield from (ClassPath(file, name) for file in module_paths(module))


def classes(sources: Mapping[str, str]) -> dict[ClassPath, Found]:
    """Return the classes at the top level of these modules."""
    found = {}
    for path, text in sources.items():
        tree = ast.parse(text)
        imported = {
            name.asname or name.name: f"{node.module}.{name.name}"
            for node in nodes_of(tree)
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bases = tuple(base_paths(node, path, imported))
                found[ClassPath(path, node.name)] = Found(node, bases)
    return found


def with_bases(place: ClassPath, known: Mapping[ClassPath, Found]) -> set[ClassPath]:
    """Return a class and all its bases among the known classes."""
    found: set[ClassPath] = set()
    left = [place]
    while left:
        at = left.pop()
        if at in known and at not in found:
            found.add(at)
            left.extend(known[at].bases)
    return found


def sizes(sources: Mapping[str, str]) -> dict[str, Size]:
    """Return the size of each class by `PATH:NAME`."""
    known = classes(sources)
    result = {}
    for place in known:
        nodes = [known[each].node for each in with_bases(place, known)]
        result[f"{place.path}:{place.name}"] = Size(
            sum((node.end_lineno or 0) - node.lineno + 1 for node in nodes),
            sum(
                isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                for node in nodes
                for each in node.body
            ),
        )
    return result


def listed() -> dict[str, Size]:
    entries = [
        line.split(" ") for line in FILE.read_text().splitlines() if line[:1] not in ("#", "")
    ]
    return {name: Size(int(count), int(methods)) for name, count, methods in entries}


def test_class_with_its_bases_is_small() -> None:
    """CONTRIBUTING.md, "Small"."""
    sources = {
        str(path.relative_to(ROOT)): path.read_text()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    large = {name: size for name, size in sizes(sources).items() if size.is_too_large}
    known = listed()
    grown = {
        name: size for name, size in large.items() if name not in known or size.exceeds(known[name])
    }
    assert grown == {}, "larger than the limit, or than in class_sizes.txt"
    stale = {
        name: large.get(name)
        for name, size in known.items()
        if name not in large or size.exceeds(large[name])
    }
    assert stale == {}, "these shrank: lower or remove their lines in class_sizes.txt"


def test_size_counts_bases_in_other_modules() -> None:
    """A class is as large as the object that it makes."""
    base = "class Base:\n    def a(self): ...\n    x = 1\n"
    sources = {
        "p/base.py": base,
        "p/__init__.py": "class Root(list[int]):\n    def r(self): ...\n",
        "q/named.py": "from p.base import Base as B\nclass Named(B, C):\n    def b(self): ...\n",
        "q/dotted.py": (
            "from p import base, Root\n"
            "class Generic(base.Base[int], Root):\n    async def c(self): ...\n"
            "class Last(Generic): y = 1\n"
        ),
    }
    assert sizes(sources) == {
        "p/base.py:Base": Size(3, 1),
        "p/__init__.py:Root": Size(2, 1),
        "q/named.py:Named": Size(5, 2),
        "q/dotted.py:Generic": Size(7, 3),
        "q/dotted.py:Last": Size(8, 3),
    }


def test_size_above_either_limit_is_too_large() -> None:
    assert not Size(LINES_MAX, METHODS_MAX).is_too_large
    assert Size(LINES_MAX + 1, 1).is_too_large and Size(1, METHODS_MAX + 1).is_too_large


def test_listed_class_may_grow_in_lines_up_to_the_limit() -> None:
    """A class with too many methods may get longer docstrings."""
    known = Size(300, 40)
    assert not Size(LINES_MAX, 40).exceeds(known)
    assert Size(LINES_MAX + 1, 40).exceeds(known) and Size(300, 41).exceeds(known)
