"""Shell: The object-store port: the only interface through which Kraftbox accesses a bucket.

Every implementation keeps these rules, and callers may rely on them:

* An object exists whole or not at all, and never changes: a key is written once. A caller that
  retries after a failure uses another key. A put that failed may still have taken effect.
* A put that returned is durable. A put that failed or was cancelled leaves no parts behind that
  cost money, as far as the store allows.
* `get` returns exactly the requested bytes; fewer or more bytes raise ObjectCorrupt.
* Errors are only the four classes below (and OSError from reading a local file).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from protocol.schema import Buffer
from storage.files import File, Files


class ObjectError(Exception):
    """A failed call of an object store. `key` is the object, or a prefix of keys."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


class ObjectNotFound(ObjectError):
    """No object has this key."""


class ObjectRefused(ObjectError):
    """The store refuses permanently: credentials, bucket or request are wrong."""


class ObjectRetriable(ObjectError):
    """A retry may succeed: no connection, no answer in time, a failure inside the store."""


class ObjectCorrupt(ObjectError):
    """The answer does not match the object: too short, too long, or other bytes."""


class FileRange(NamedTuple):
    """`size_bytes` of a local file from `start` on; a put reads them in parts."""

    files: Files
    file: File
    start: int
    size_bytes: int

    async def parts(self, part_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes in order. Raises OSError, also if the file ends before the range does."""
        at, end = self.start, self.start + self.size_bytes
        while at < end:
            want = min(part_bytes, end - at)
            part = await self.files.pread(self.file, want, at)
            if len(part) != want:
                raise OSError(f"{self.file.path} ends at {at + len(part)}, before {end}")
            yield part
            at += want


Source: TypeAlias = bytes | FileRange


def size_of(source: Source) -> int:
    """Return how many bytes a put will write."""
    return source.size_bytes if isinstance(source, FileRange) else len(source)


class ObjectInfo(NamedTuple):
    """Attributes of an object, as the store reports them."""

    key: str
    size_bytes: int
    modified_ms: int
    """Wall-clock time of the store, in epoch milliseconds."""


class Objects(Protocol):
    """A bucket, or the part of one below a prefix. Keys are relative; their parts are divided by
    `/`."""

    async def put(self, key: str, source: Source) -> None:
        """Write an object. Raises ObjectError; OSError if a local file cannot be read."""
        ...

    async def get(self, key: str, start: int, size_bytes: int) -> Buffer:
        """Return exactly `size_bytes` (at least one) from `start`, in a buffer that never changes.

        If possible it is the store's own buffer, as a copy costs as much as the checksum. Raises
        ObjectError.
        """
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Return an object's attributes. Raises ObjectError."""
        ...

    def pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        """Yield all objects whose key begins with the folder `prefix`, in pages.

        `prefix` has no `/` at its end; empty means all objects. Raises ObjectError.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are ignored. Raises ObjectError: some of them may be
        removed."""
        ...

    async def close(self) -> None:
        """Close all connections of the store."""
        ...


async def whole(objects: Objects, key: str, size_bytes: int) -> bytes:
    """Return a whole object whose size is known. Raises ObjectError."""
    return bytes(await objects.get(key, 0, size_bytes)) if size_bytes else b""


async def listed(objects: Objects, prefix: str) -> list[ObjectInfo]:
    """Return all objects of a folder. Raises ObjectError."""
    return [info async for page in objects.pages(prefix) for info in page]
