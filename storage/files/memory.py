"""In-memory implementation of the file port, for tests and for disks of simulated nodes.

All content counts as durable at once; put `LossyFiles` over it to lose unflushed content. An open
file stays readable after a rename or an unlink, as on a real file system.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from typing import TypeVar

from storage.files.port import Buffer, DirectoryLocked, File
from storage.files.simulated_paths import normal_path, split_path

T = TypeVar("T")

_DISK_BYTES = 1 << 40


class _Inode:
    __slots__ = ("content", "modified_ms", "rotten")

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.modified_ms = modified_ms
        self.rotten: dict[int, int] = {}
        """Flipped bits by position. Overwriting a position clears its bits."""

    def unspoil(self, begin: int, end: int | None = None) -> None:
        """Forget flipped bits in a range that is about to be overwritten (default: up to the
        end)."""
        if self.rotten:
            last = len(self.content) if end is None else end
            self.rotten = {at: bits for at, bits in self.rotten.items() if not begin <= at < last}


class MemoryFile:
    __slots__ = ("_files", "_inode", "path")

    def __init__(self, files: MemoryFiles, path: str, inode: _Inode) -> None:
        self.path = path
        self._files = files
        self._inode = inode

    def append(self, data: Buffer) -> int:
        content = self._inode.content
        position = len(content)
        content += data
        self._inode.modified_ms = self._files.now_ms()
        return position

    def append_many(self, parts: Sequence[Buffer]) -> int:
        position = len(self._inode.content)
        for part in parts:
            self.append(part)
        return position

    def pread(self, size_bytes: int, position: int) -> bytes:
        if position < 0:
            raise OSError(errno.EINVAL, "a position below 0", self.path)
        return self._files.seen(self._inode, position, size_bytes)

    def pwrite(self, data: Buffer, position: int) -> None:
        content = self._inode.content
        self._inode.unspoil(position, position + len(data))
        if position > len(content):
            content += bytes(position - len(content))
        content[position : position + len(data)] = data
        self._inode.modified_ms = self._files.now_ms()

    def truncate(self, size_bytes: int) -> None:
        content = self._inode.content
        if size_bytes < len(content):
            self._inode.unspoil(size_bytes)
            del content[size_bytes:]
        else:
            content += bytes(size_bytes - len(content))
        self._inode.modified_ms = self._files.now_ms()

    def size(self) -> int:
        return len(self._inode.content)

    def close(self) -> None:
        return


class MemoryFiles:
    """A file system in memory. `now_ms` returns the modification times."""

    shared = False

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        self._inodes: dict[str, _Inode] = {}
        self._children: dict[str, set[str]] = {"/": set()}
        self._locked: set[str] = set()
        self.shows_rot: Callable[[], bool] = lambda: True
        """Returns whether the current reader sees flipped bits instead of what was written."""
        self.rot_reads = 0
        """Number of reads that returned flipped bits."""

    def spoil(self, path: str, position: int, bit: int) -> None:
        """Flip a bit of the written content silently; `repair` undoes it."""
        rotten = self._inode(path).rotten
        rotten[position] = rotten.get(position, 0) ^ bit

    def repair(self) -> int:
        """Restore the content as it was written. Returns how many bytes had flipped bits."""
        spoilt = sum(len(inode.rotten) for inode in self._inodes.values())
        for inode in self._inodes.values():
            inode.rotten = {}
        return spoilt

    def seen(self, inode: _Inode, position: int, size_bytes: int) -> bytes:
        """Return the bytes that a reader sees, and count the read if any bits are flipped."""
        data = bytes(memoryview(inode.content)[position : position + size_bytes])
        if not inode.rotten or not self.shows_rot():
            return data
        wrong = bytearray(data)
        for at, bits in inode.rotten.items():
            if position <= at < position + len(data):
                wrong[at - position] ^= bits
        if wrong != data:
            self.rot_reads += 1
        return bytes(wrong)

    def open(self, path: str, create: bool = False) -> MemoryFile:
        path = normal_path(path)
        inode = self._inodes.get(path)
        if inode is None:
            if path in self._children:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = self._inodes[path] = _Inode(self.now_ms())
            self._link(path)
        return MemoryFile(self, path, inode)

    def _link(self, path: str) -> None:
        directory, name = split_path(path)
        children = self._children.get(directory)
        if children is None:
            self._inodes.pop(path, None)
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        children.add(name)

    def _forget(self, path: str) -> None:
        directory, name = split_path(path)
        self._children[directory].discard(name)

    def exists(self, path: str) -> bool:
        path = normal_path(path)
        return path in self._inodes or path in self._children

    def isdir(self, path: str) -> bool:
        return normal_path(path) in self._children

    def listdir(self, path: str) -> list[str]:
        children = self._children.get(normal_path(path))
        if children is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return sorted(children)

    def mkdirs(self, path: str) -> None:
        path = normal_path(path)
        if path in self._children:
            return
        parent = posixpath.dirname(path)
        if parent != path:
            if parent and parent not in self._children:
                self.mkdirs(parent)
            self._children.setdefault(parent, set()).add(posixpath.basename(path))
        self._children[path] = set()

    def rename(self, source: str, target: str) -> None:
        source, target = normal_path(source), normal_path(target)
        if source in self._children:
            self._rename_directory(source, target)
            return
        inode = self._inodes.pop(source, None)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._forget(source)
        self._inodes[target] = inode
        self._link(target)

    def _rename_directory(self, source: str, target: str) -> None:
        if target in self._inodes or self._children.get(target):
            raise OSError(errno.ENOTEMPTY, "the target exists", target)
        prefix = source + "/"
        for path in [p for p in self._inodes if p.startswith(prefix)]:
            self._inodes[target + path[len(source) :]] = self._inodes.pop(path)
        for path in [p for p in self._children if p == source or p.startswith(prefix)]:
            self._children[target + path[len(source) :]] = self._children.pop(path)
        self._forget(source)
        self._link(target)

    def unlink(self, path: str) -> None:
        path = normal_path(path)
        if self._inodes.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._forget(path)

    def rmtree(self, path: str) -> None:
        path = normal_path(path)
        if path not in self._children:
            return
        for name in list(self._children[path]):
            child = posixpath.join(path, name)
            if child in self._children:
                self.rmtree(child)
            else:
                self.unlink(child)
        del self._children[path]
        if path != "/":
            self._forget(path)

    def _inode(self, path: str) -> _Inode:
        inode = self._inodes.get(normal_path(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def read(self, path: str) -> bytes:
        inode = self._inode(path)
        return self.seen(inode, 0, len(inode.content))

    def write_new(self, path: str, data: bytes) -> None:
        self.write_atomic(path, data)

    def make_read_only(self, path: str) -> None:
        return

    def write_atomic(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.append(data)

    def touch(self, path: str) -> None:
        self.open(path, create=True)

    def fsync(self, file: File) -> None:
        return

    def fsync_dir(self, path: str) -> None:
        return

    async def flush(self, files: Sequence[File]) -> None:
        return

    async def flush_dir(self, path: str) -> None:
        await self.run(self.fsync_dir, path)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        return function(*args)

    async def pread(self, file: File, size_bytes: int, position: int) -> bytes:
        return file.pread(size_bytes, position)

    def is_cached(self, file: File, size_bytes: int, position: int) -> bool:
        return False

    def lock(self, path: str) -> Callable[[], None]:
        path = normal_path(path)
        if path in self._locked:
            raise DirectoryLocked(errno.EWOULDBLOCK, "held by another node", path)
        self.touch(path)
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    def disk_usage(self, path: str) -> tuple[int, int]:
        used = sum(len(inode.content) for inode in self._inodes.values())
        return _DISK_BYTES, _DISK_BYTES - used

    def close(self) -> None:
        return
