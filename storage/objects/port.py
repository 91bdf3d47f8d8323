"""Shell: the object-store port: the one door to a bucket.

Rules that every implementation keeps and every caller may lean on:

* An object is there whole or not at all, and never changes: a key is written once. Whoever tries
  again after a failure takes another key. A put that failed may still have happened.
* A put that came back is durable. A put that failed or was cancelled leaves no parts behind that
  cost money, as far as the store lets us see to that.
* `get` returns exactly the bytes that were asked for; less, or more, is ObjectCorrupt.
* Errors are the four classes below and nothing else (but what reading a local file raises).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from protocol.schema import Buffer
from storage.files import File, Files


class ObjectError(Exception):
    """An object store did not do what it was asked. `key` is the object, or a prefix of keys."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


class ObjectNotFound(ObjectError):
    """There is no object of this key."""


class ObjectRefused(ObjectError):
    """The store will not do it, however often it is asked: credentials, bucket, request."""


class ObjectRetriable(ObjectError):
    """It may work later: no connection, no answer in time, a failure inside the store."""


class ObjectCorrupt(ObjectError):
    """The answer is not what the object is: too short, too long, or other bytes."""


class FileRange(NamedTuple):
    """`size_bytes` of a local file from `start` on; whoever puts them reads them in parts."""

    files: Files
    file: File
    start: int
    size_bytes: int

    async def parts(self, part_bytes: int) -> AsyncGenerator[bytes, None]:
        """The bytes in order. Raises OSError, also when the file ends before the range does."""
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
    """How many bytes a put will write."""
    return source.size_bytes if isinstance(source, FileRange) else len(source)


class ObjectInfo(NamedTuple):
    """What a store says of an object."""

    key: str
    size_bytes: int
    modified_ms: int
    """Wall time of the store, epoch milliseconds."""


class Objects(Protocol):
    """A bucket, or a part of one below a prefix. Keys are relative, their parts divided by `/`."""

    async def put(self, key: str, source: Source) -> None:
        """Write an object. Raises ObjectError; OSError when a local file cannot be read."""
        ...

    async def get(self, key: str, start: int, size_bytes: int) -> Buffer:
        """Exactly `size_bytes` (at least one) from `start`, in a buffer that stays as it is: the
        store's own where it has one, as a copy costs as much as the checksum. Raises ObjectError.
        """
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Raises ObjectError."""
        ...

    def pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        """All objects whose key begins with the folder `prefix` (no `/` at its end; empty: all).
        Raises ObjectError."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error. Raises ObjectError: any number of
        them may be gone then."""
        ...

    async def close(self) -> None:
        """Give connections back."""
        ...


async def whole(objects: Objects, key: str, size_bytes: int) -> bytes:
    """A whole object whose size is known. Raises ObjectError."""
    return bytes(await objects.get(key, 0, size_bytes)) if size_bytes else b""


async def listed(objects: Objects, prefix: str) -> list[ObjectInfo]:
    """All objects of a folder. Raises ObjectError."""
    return [info async for page in objects.pages(prefix) for info in page]
