"""Shell: In-memory object store, for tests and as the bucket of a simulated cluster.

It never fails and takes no time; put `FaultyObjects` over it for faults and delays. Nodes that
share an instance share the bucket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from storage.objects.port import (
    FileRange,
    ObjectCorrupt,
    ObjectInfo,
    ObjectNotFound,
    Source,
)

PAGE_KEYS = 1000
READ_BYTES = 1 << 20


class _Object(NamedTuple):
    content: bytes
    modified_ms: int


class MemoryObjects:
    """A bucket. `now_ms` returns the modification times."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._now_ms = now_ms
        self._objects: dict[str, _Object] = {}

    @property
    def keys(self) -> list[str]:
        """All keys of the bucket, sorted."""
        return sorted(self._objects)

    def content(self, key: str) -> bytes:
        """Return the bytes of an object, for inspection by tests. Raises KeyError."""
        return self._objects[key].content

    def replace(self, key: str, content: bytes) -> None:
        """Replace the bytes under an existing key, which no client can do."""
        self._objects[key] = _Object(content, self._now_ms())

    async def put(self, key: str, source: Source) -> None:
        if isinstance(source, FileRange):
            source = b"".join([part async for part in source.parts(READ_BYTES)])
        self._objects[key] = _Object(bytes(source), self._now_ms())

    async def get(self, key: str, start: int, size_bytes: int) -> bytes:
        content = self._found(key).content[start : start + size_bytes]
        if len(content) != size_bytes:
            raise ObjectCorrupt(key, f"{len(content)} bytes from {start}, not {size_bytes}")
        return content

    async def head(self, key: str) -> ObjectInfo:
        return self._info(key, self._found(key))

    async def pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        folder = f"{prefix}/" if prefix else ""
        keys = [key for key in self.keys if key.startswith(folder)]
        for at in range(0, len(keys), PAGE_KEYS):
            page = [key for key in keys[at : at + PAGE_KEYS] if key in self._objects]
            yield [self._info(key, self._objects[key]) for key in page]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._objects.pop(key, None)

    async def close(self) -> None:
        return

    def _found(self, key: str) -> _Object:
        found = self._objects.get(key)
        if found is None:
            raise ObjectNotFound(key, "no such object")
        return found

    @staticmethod
    def _info(key: str, found: _Object) -> ObjectInfo:
        return ObjectInfo(key, len(found.content), found.modified_ms)
