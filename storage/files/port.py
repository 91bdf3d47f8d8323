"""The file port: the only interface through which Kraftbox accesses a disk.

Every implementation keeps these rules, and callers may rely on them:

* `append`, `pread` and the directory calls are plain calls. They hit the page cache, take
  microseconds and run on the event loop. Potentially slow calls are awaited: `flush` (fdatasync in
  a worker, shared by all concurrent callers) and `run` (any function, in a worker).
* Nothing is durable before `flush`, `fsync`, `fsync_dir` or `write_atomic` has returned. The
  directory entry of a new file is durable with the first flush of the file, or with `fsync_dir`; a
  rename or an unlink only with `fsync_dir`.
* A file has one writer. `append` writes at the end that the writer knows. If it fails, the file is
  truncated to its previous size if the disk still allows that, and the error is raised.
* A file is poisoned once a flush of it has failed: the kernel may have dropped the dirty pages, so
  a second flush that "works" proves nothing (reliability F19). Every later flush or append raises.

Errors are plain OSError; the log turns them into KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class DirectoryLocked(OSError):
    """Another process, or another node of this process, holds the lock on that path."""


class File(Protocol):
    """One open file."""

    @property
    def path(self) -> str: ...

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end. Returns the position of its first byte."""
        ...

    def append_many(self, parts: Sequence[Buffer]) -> int:
        """Write the parts at the end with one call. Returns the position of the first part."""
        ...

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Return at most `size_bytes` from `position`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def truncate(self, size_bytes: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Close the descriptor without flushing. Closing twice is harmless."""
        ...


class Files(Protocol):
    """A file system, or an object that behaves like one."""

    @property
    def shared(self) -> bool:
        """True if other processes of this machine see the same files."""
        ...

    def open(self, path: str, create: bool = False) -> File:
        """Open a file. Raises FileNotFoundError if it does not exist and `create` is false."""
        ...

    def exists(self, path: str) -> bool: ...

    def isdir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def mkdirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing a file at `target`. Open files of `source` stay valid."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name. Raises FileNotFoundError if there is no such file."""
        ...

    def rmtree(self, path: str) -> None:
        """Remove a directory and its content. A missing directory is ignored."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Return the wall-clock time of the last change, in epoch milliseconds."""
        ...

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace the content durably: after a crash the file is entirely old or entirely new."""
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole file and block until its content is durable; its name may not be."""
        ...

    def make_read_only(self, path: str) -> None:
        """Take all rights but the owner's right to read from a file (mode 0400)."""
        ...

    def touch(self, path: str) -> None:
        """Create an empty file unless it exists."""
        ...

    def fsync(self, file: File) -> None:
        """Flush one file, blocking the caller: for start, stop and small rare files."""
        ...

    def fsync_dir(self, path: str) -> None: ...

    async def flush(self, files: Sequence[File]) -> None:
        """Make the content that the files have now durable, and the names of new files."""
        ...

    async def flush_dir(self, path: str) -> None:
        """Run `fsync_dir` without blocking. Calls made during a flush share the next one."""
        ...

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call `function` in a worker thread (inline in simulation)."""
        ...

    async def pread(self, file: File, size_bytes: int, position: int) -> bytes:
        """Run `file.pread` off the event loop, for reads that may wait for the disk."""
        ...

    def is_cached(self, file: File, size_bytes: int, position: int) -> bool:
        """Return whether `file.pread` can probably be served from memory; False if unknown.

        If so, the bytes that follow are read into the page cache, for a sequential reader.
        """
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Lock the file at `path` for this node. Returns a function that releases the lock.

        Raises DirectoryLocked if another node or process holds it.
        """
        ...

    def disk_usage(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the file system that holds `path`."""
        ...

    def close(self) -> None:
        """Close every open file and stop the workers."""
        ...
