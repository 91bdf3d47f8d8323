"""Open files by path, moved with the directory that is renamed.

A tree by the parts of paths, since a broker holds tens of thousands of files, and the rename of one
directory concerns the handful in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Movable(Protocol):
    """An open file."""

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
    """Files are added with the path they have."""

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
        """Forget a file; one that is not known is fine."""
        node = self._find(file.path)
        if node is not None and file in node.files:
            del node.files[file]
            self._prune(file.path)

    def move(self, source: str, target: str) -> None:
        """A file or directory was renamed: what is open in it has another path."""
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
        """Take out the nodes on the way to `path` that hold nothing."""
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
