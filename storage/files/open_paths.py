"""Index of open files by path that follows directory renames.

It is a tree over path components: a broker holds tens of thousands of files, and a rename of one
directory concerns only the few in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Movable(Protocol):
    """An open file that can be moved to another path."""

    @property
    def path(self) -> str: ...

    def moved(self, path: str) -> None: ...


F = TypeVar("F", bound=Movable)


class _Node(Generic[F]):
    __slots__ = ("files", "inside")

    def __init__(self) -> None:
        self.files: dict[F, None] = {}
        self.inside: dict[str, _Node[F]] = {}


class OpenPaths(Generic[F]):
    """Set of open files, each indexed by its `path`."""

    def __init__(self) -> None:
        self._root: _Node[F] = _Node()

    def __len__(self) -> int:
        return sum(len(node.files) for _, node in _walk(self._root, ""))

    def add(self, file: F) -> None:
        node = self._root
        for part in file.path.split("/"):
            found = node.inside.get(part)
            if found is None:
                found = node.inside[part] = _Node()
            node = found
        node.files[file] = None

    def discard(self, file: F) -> None:
        """Remove a file. An unknown file is ignored."""
        node = self._find(file.path)
        if node is not None and file in node.files:
            del node.files[file]
            self._prune(file.path)

    def move(self, source: str, target: str) -> None:
        """Update the paths of all open files at or below `source` after a rename to `target`."""
        node = self._find(source)
        if node is None:
            return
        moved = [(path, file) for path, each in _walk(node, target) for file in each.files]
        node.files, node.inside = {}, {}
        self._prune(source)
        for path, file in moved:
            file.moved(path)
            self.add(file)

    def _find(self, path: str) -> _Node[F] | None:
        node: _Node[F] | None = self._root
        for part in path.split("/"):
            node = None if node is None else node.inside.get(part)
        return node

    def _prune(self, path: str) -> None:
        """Remove the empty nodes on the way to `path`."""
        way = [self._root]
        parts = path.split("/")
        for part in parts:
            way.append(way[-1].inside[part])
        for parent, part, node in reversed(list(zip(way, parts, way[1:], strict=False))):
            if node.files or node.inside:
                return
            del parent.inside[part]


def _walk(node: _Node[F], path: str) -> Iterator[tuple[str, _Node[F]]]:
    yield path, node
    for part, inner in node.inside.items():
        yield from _walk(inner, f"{path}/{part}")
