"""The file port: the one door through which anything of ours touches a disk.

Rules that every implementation keeps and every caller may lean on:

* `append`, `pread` and the directory calls are plain calls. They hit the page cache, cost
  microseconds and run on the event loop. What can be slow is awaited: `flush` (fdatasync in a
  worker, shared by everyone who asks at the same time) and `run` (any function, in a worker).
* Nothing is durable before `flush`, `fsync`, `fsync_dir` or `write_atomic` came back. The entry of
  a new file in its directory is durable with the first flush of the file, or with `fsync_dir`; a
  rename or an unlink only with `fsync_dir`.
* A file has one writer. `append` writes at the end that the writer knows; when it fails, the file
  is cut back to where it was if the disk still allows that, and the error is raised.
* A file whose flush failed once is poisoned: the kernel may have dropped the dirty pages, so a
  second flush that "works" proves nothing (reliability F19). Every later flush or append raises.

Errors are plain OSError; the log turns them into KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class DirectoryLocked(OSError):
    """Another process (or node of this process) holds the lock on that path."""


class File(Protocol):
    """One open file."""

    @property
    def path(self) -> str: ...

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end; returns the position it begins at."""
        ...

    def append_many(self, parts: Sequence[Buffer]) -> int:
        """Write the parts at the end with one call; returns the position of the first."""
        ...

    def pread(self, size_bytes: int, position: int) -> bytes:
        """At most `size_bytes` from `position`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def truncate(self, size_bytes: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Give the descriptor back. Does not flush. Closing twice is harmless."""
        ...


class Files(Protocol):
    """A file system, or something that behaves like one."""

    @property
    def shared(self) -> bool:
        """Whether another process of this machine sees the same files."""
        ...

    def open(self, path: str, create: bool = False) -> File:
        """Raises FileNotFoundError unless the file exists or `create` is set."""
        ...

    def exists(self, path: str) -> bool: ...

    def isdir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def mkdirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at `target`. Open files of `source` stay valid."""
        ...

    def unlink(self, path: str) -> None:
        """Raises FileNotFoundError."""
        ...

    def rmtree(self, path: str) -> None:
        """Remove a directory and what is in it. A missing one is no error."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Wall time of the last change, epoch milliseconds."""
        ...

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace the content durably: after a crash the file is wholly old or wholly new."""
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole file and wait until its content is durable; its name may not be."""
        ...

    def touch(self, path: str) -> None:
        """Create an empty file unless there is one."""
        ...

    def fsync(self, file: File) -> None:
        """Flush one file and wait, blocking: for start, stop and small rare files."""
        ...

    def fsync_dir(self, path: str) -> None: ...

    async def flush(self, files: Sequence[File]) -> None:
        """Make the content of the files durable as it was when this was called, and the names of
        those that are new."""
        ...

    async def flush_dir(self, path: str) -> None:
        """`fsync_dir` without blocking: whoever asks meanwhile shares the next turn of the disk."""
        ...

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call `function` in a worker thread (inline in simulation)."""
        ...

    async def pread(self, file: File, size_bytes: int, position: int) -> bytes:
        """`file.pread` off the loop: for reads that may have to wait for the disk."""
        ...

    def is_cached(self, file: File, size_bytes: int, position: int) -> bool:
        """Whether `file.pread` will probably wait for no disk; False where nobody knows. If so,
        what follows is brought into the page cache meanwhile, for whoever reads on."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Lock the file at `path` for this node; returns the release. Raises DirectoryLocked."""
        ...

    def disk_usage(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds `path`."""
        ...

    def close(self) -> None:
        """Close every open file and stop the workers."""
        ...
