"""Overlay that loses unflushed writes on a crash, for crash tests.

The process sees a normal file system. The backing `Files` receives only what a strict reading of
POSIX promises to survive a power cut:

* the content of a file as of its last flush or fsync; later writes live in memory only;
* the name of a new file, with the first fsync of the file or an fsync of its directory (an entry
  made durable that way is an empty file until the content is flushed);
* a rename or an unlink, with an fsync of the directory.

Creating, removing or renaming a directory takes effect at once: a real disk may persist it early,
and no caller relies on it being late.

Over MemoryFiles, the overlay is the disk of a simulated node. `crash()` kills the overlay, and a
new overlay on the same backing is the machine after its reboot. Over RealFiles, it turns a kill -9
of a real process into a power cut.

Hooks: `on_op(kind, path)` runs before every operation that could change what survives; it may
raise, to crash at that point or to inject an OSError. `on_read(path)` runs before every read of
flushed content. `on_data(path, offset, bytes)` returns the result of such a read, which may differ
from what was written. A file whose flush failed is poisoned, as the port requires.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeVar, cast

from storage.files.port import Buffer, File, Files
from storage.files.simulated_paths import normal_path, split_path

T = TypeVar("T")

OpHook = Callable[[str, str], None]
ReadHook = Callable[[str], None]
DataHook = Callable[[str, int, bytes], bytes]
WriteHook = Callable[[str, int, Buffer], None]

_PAGE_BYTES = 512


class Crashed(OSError):
    """The simulated machine is off; code that still runs on it cannot reach its disk."""


class _Inode:
    """A file, independent of its name.

    `durable_path` is the backing file with the flushed content (None: no such file). The content
    is the first `base` bytes of that file, then `tail`, which exists only in memory.
    """

    __slots__ = ("base", "durable_path", "handle", "modified_ms", "path", "tail")

    def __init__(self, path: str, durable_path: str | None, base: int, modified_ms: int) -> None:
        self.path: str | None = path
        self.durable_path = durable_path
        self.base = base
        self.tail = bytearray()
        self.handle: File | None = None
        self.modified_ms = modified_ms

    @property
    def size(self) -> int:
        return self.base + len(self.tail)


class LossyFile:
    __slots__ = ("_files", "_poison", "inode", "path")

    def __init__(self, files: LossyFiles, path: str, inode: _Inode) -> None:
        self.path = path
        self._files = files
        self.inode = inode
        self._poison: OSError | None = None

    def check(self) -> None:
        """Check that no flush of this file has failed. Raises OSError if one has."""
        if self._poison is not None:
            raise OSError(
                self._poison.errno, "an earlier flush failed", self.path
            ) from self._poison

    def sync_begins(self) -> None:
        """Run the `on_op` hook of an fsync.

        Raises OSError if the hook refuses, or has refused before: a failure poisons the file.
        """
        self.check()
        try:
            self._files.op("fsync", self.path)
        except OSError as error:
            self._poison = error
            raise

    def append(self, data: Buffer) -> int:
        self.check()
        self._files.op("append", self.path)
        position = self.inode.size
        self._files.wrote(self.path, position, data)
        self.inode.tail += data
        self.inode.modified_ms = self._files.now_ms()
        return position

    def append_many(self, parts: Sequence[Buffer]) -> int:
        self.check()
        self._files.op("append", self.path)
        position = self.inode.size
        for part in parts:
            self._files.wrote(self.path, self.inode.size, part)
            self.inode.tail += part
        self.inode.modified_ms = self._files.now_ms()
        return position

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._files.alive()
        inode = self.inode
        if position >= inode.base:
            start = position - inode.base
            return bytes(memoryview(inode.tail)[start : start + size_bytes])
        self._files.reading(self.path)
        data = self._files.handle(inode).pread(min(size_bytes, inode.base - position), position)
        if self._files.on_data is not None:
            data = self._files.on_data(self.path, position, data)
        return data + bytes(inode.tail[: size_bytes - len(data)])

    def pwrite(self, data: Buffer, position: int) -> None:
        self._files.op("pwrite", self.path)
        self._files.wrote(self.path, position, data)
        inode = self.inode
        if position < inode.base:
            kept = self._files.handle(inode).pread(inode.base - position, position)
            inode.tail[:0] = kept
            inode.base = position
        start = position - inode.base
        if start > len(inode.tail):
            inode.tail += bytes(start - len(inode.tail))
        inode.tail[start : start + len(data)] = data
        inode.modified_ms = self._files.now_ms()

    def truncate(self, size_bytes: int) -> None:
        self._files.op("truncate", self.path)
        inode = self.inode
        if size_bytes <= inode.base:
            inode.base = size_bytes
            inode.tail.clear()
        elif size_bytes <= inode.size:
            del inode.tail[size_bytes - inode.base :]
        else:
            inode.tail += bytes(size_bytes - inode.size)
        inode.modified_ms = self._files.now_ms()

    def size(self) -> int:
        return self.inode.size

    def close(self) -> None:
        self._files.opened.pop(self, None)


class LossyFiles:
    """Files over `backing` of which only flushed content survives.

    Args:
        backing: holds the surviving state.
        on_op: called with (kind, path) before each changing operation; may raise.
        before_flush: awaited by `flush`, so that a simulated flush takes virtual time.
        before_work: awaited by `run` and `pread`, which use a worker thread on a real system.
        now_ms: clock for modification times.
    """

    shared = False

    def __init__(
        self,
        backing: Files,
        *,
        on_op: OpHook | None = None,
        before_flush: Callable[[], Awaitable[None]] | None = None,
        before_work: Callable[[], Awaitable[None]] | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.backing = backing
        self.on_op = on_op
        self.on_write: WriteHook | None = None
        """Called with (path, offset, bytes) before each write."""
        self.on_read: ReadHook | None = None
        """Called with the path before each read from the backing; may raise."""
        self.on_data: DataHook | None = None
        """Called with (path, offset, bytes) after each such read; its result replaces the bytes."""
        self.before_flush = before_flush
        self.before_work = before_work
        self.now_ms = now_ms
        self._entries: dict[str, dict[str, _Inode | None]] = {}
        self._owner: dict[str, _Inode] = {}
        self._locks: list[Callable[[], None]] = []
        self.opened: dict[LossyFile, None] = {}
        """Files that the process has open, in the order in which it opened them."""
        self._off = False
        self._working: dict[asyncio.Task[Any], None] = {}

    # The process's view ----------------------------------------------------------------------

    def alive(self) -> None:
        if self._off:
            raise Crashed(errno.EIO, "the machine is off")

    def op(self, kind: str, path: str) -> None:
        self.alive()
        if self.on_op is not None:
            self.on_op(kind, path)

    def reading(self, path: str) -> None:
        if self.on_read is not None:
            self.on_read(path)

    def wrote(self, path: str, offset: int, data: Buffer) -> None:
        if self.on_write is not None:
            self.on_write(path, offset, data)

    def handle(self, inode: _Inode) -> File:
        if inode.handle is None:
            if inode.durable_path is None:
                raise FileNotFoundError(errno.ENOENT, "no durable content", inode.path)
            inode.handle = self.backing.open(inode.durable_path)
        return inode.handle

    def _directory(self, path: str) -> dict[str, _Inode | None]:
        """Return the live entries of a directory (None marks a directory), loaded at first use."""
        entries = self._entries.get(path)
        if entries is None:
            if not self.backing.isdir(path):
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            entries = self._entries[path] = {}
            for name in self.backing.listdir(path):
                child = posixpath.join(path, name)
                if self.backing.isdir(child):
                    entries[name] = None
                else:
                    inode = _Inode(
                        child, child, self.backing.size(child), self.backing.modified_ms(child)
                    )
                    entries[name] = inode
                    self._owner[child] = inode
        return entries

    def _find(self, path: str) -> _Inode | None:
        directory, name = split_path(path)
        try:
            return self._directory(directory).get(name)
        except FileNotFoundError:
            return None

    def _existing(self, path: str) -> _Inode:
        self.alive()
        path = normal_path(path)
        inode = self._find(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def open(self, path: str, create: bool = False) -> LossyFile:
        self.alive()
        path = normal_path(path)
        inode = self._find(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if self.isdir(path):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            directory, name = split_path(path)
            entries = self._directory(directory)
            self.op("create", path)
            inode = entries[name] = _Inode(path, None, 0, self.now_ms())
        file = LossyFile(self, path, inode)
        self.opened[file] = None
        return file

    def rot(self, path: str, position: int, bit: int) -> None:
        """Flip a bit of the written content silently and permanently; no hook runs."""
        inode = self._existing(path)
        if position >= inode.base:
            inode.tail[position - inode.base] ^= bit
            return
        backing = self.handle(inode)
        backing.pwrite(bytes([backing.pread(1, position)[0] ^ bit]), position)

    def durable_bytes(self, path: str) -> tuple[str, int]:
        """Return the backing path of a file ("" if none) and how many of its bytes are still
        valid."""
        inode = self._existing(path)
        return inode.durable_path or "", inode.base

    def exists(self, path: str) -> bool:
        self.alive()
        return self._find(normal_path(path)) is not None or self.isdir(path)

    def isdir(self, path: str) -> bool:
        self.alive()
        path = normal_path(path)
        return path in self._entries or self.backing.isdir(path)

    def listdir(self, path: str) -> list[str]:
        self.alive()
        return sorted(self._directory(normal_path(path)))

    def mkdirs(self, path: str) -> None:
        path = normal_path(path)
        if self.isdir(path):
            return
        self.op("mkdirs", path)
        self.backing.mkdirs(path)
        while path not in ("/", ""):
            parent, name = split_path(path)
            if parent in self._entries:
                self._entries[parent].setdefault(name, None)
            path = parent

    def rename(self, source: str, target: str) -> None:
        source, target = normal_path(source), normal_path(target)
        inode = self._find(source)
        if inode is None:
            if not self.isdir(source):
                raise FileNotFoundError(errno.ENOENT, "no such file", source)
            self.op("rename", source)
            self._rename_directory(source, target)
            return
        to_directory, to_name = split_path(target)
        entries = self._directory(to_directory)
        self.op("rename", source)
        replaced = entries.get(to_name)
        if replaced is not None:
            replaced.path = None
        from_directory, from_name = split_path(source)
        del self._directory(from_directory)[from_name]
        entries[to_name] = inode
        inode.path = target

    def _rename_directory(self, source: str, target: str) -> None:
        self._settle_tree(source)
        self.backing.rename(source, target)
        prefix = source + "/"

        def moved(path: str) -> str:
            return target + path[len(source) :]

        for path in [p for p in self._entries if p == source or p.startswith(prefix)]:
            self._entries[moved(path)] = self._entries.pop(path)
        for path in [p for p in self._owner if p.startswith(prefix)]:
            inode = self._owner.pop(path)
            self._owner[moved(path)] = inode
            inode.durable_path = moved(path)
            if inode.path is not None:
                inode.path = moved(inode.path)
        parent, name = split_path(source)
        if parent in self._entries:
            self._entries[parent].pop(name, None)
        parent, name = split_path(target)
        if parent in self._entries:
            self._entries[parent][name] = None

    def _settle_tree(self, path: str) -> None:
        for directory in [p for p in self._entries if p == path or p.startswith(path + "/")]:
            self._settle_directory(directory)

    def unlink(self, path: str) -> None:
        path = normal_path(path)
        inode = self._existing(path)
        self.op("unlink", path)
        directory, name = split_path(path)
        del self._directory(directory)[name]
        inode.path = None

    def rmtree(self, path: str) -> None:
        path = normal_path(path)
        if not self.isdir(path):
            return
        self.op("rmtree", path)
        self.backing.rmtree(path)
        prefix = path + "/"
        for inner in [p for p in self._entries if p == path or p.startswith(prefix)]:
            for inode in self._entries.pop(inner).values():
                if inode is not None:
                    inode.path = None
        for owned in [p for p in self._owner if p.startswith(prefix)]:
            self._owner.pop(owned).durable_path = None
        parent, name = split_path(path)
        if parent in self._entries:
            self._entries[parent].pop(name, None)

    def size(self, path: str) -> int:
        return self._existing(path).size

    def modified_ms(self, path: str) -> int:
        return self._existing(path).modified_ms

    def read(self, path: str) -> bytes:
        file = LossyFile(self, path, self._existing(path))
        return file.pread(file.size(), 0)

    def make_read_only(self, path: str) -> None:
        return

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        self.write_new(temporary, data)
        self.rename(temporary, path)
        self.fsync_dir(posixpath.dirname(path))

    def write_new(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        try:
            file.truncate(0)
            file.append(data)
            self.fsync(file)
        finally:
            file.close()

    def touch(self, path: str) -> None:
        self.open(path, create=True).close()

    # Durability ------------------------------------------------------------------------------

    def fsync(self, file: File) -> None:
        assert isinstance(file, LossyFile)
        file.sync_begins()
        self._persist(file.inode)

    def fsync_dir(self, path: str) -> None:
        path = normal_path(path)
        self.op("fsync_dir", path)
        if path in self._entries:
            self._settle_directory(path)

    async def flush(self, files: Sequence[File]) -> None:
        # Bytes appended during this wait may stay unflushed: `flush` promises no more.
        sizes = [file.size() for file in files]
        if self.before_flush is not None:
            await self.before_flush()
        for file, size in zip(files, sizes, strict=True):
            assert isinstance(file, LossyFile)
            file.sync_begins()
            self._persist(file.inode, size)

    def _persist(self, inode: _Inode, upto: int | None = None) -> None:
        """Write the content, or its first `upto` bytes, to the backing under the durable name."""
        if inode.durable_path is None:
            if inode.path is None:
                return  # unlinked before it was ever durable
            if self.backing.exists(inode.path):
                self._settle_directory(posixpath.dirname(inode.path))
            if inode.durable_path is None:
                self._make_durable(inode, inode.path)
        handle = self.handle(inode)
        if handle.size() > inode.base:
            handle.truncate(inode.base)
        size = len(inode.tail) if upto is None else min(len(inode.tail), upto - inode.base)
        if size > 0:
            handle.append(inode.tail[:size])
            inode.base += size
            del inode.tail[:size]
        self.backing.fsync(handle)

    def _make_durable(self, inode: _Inode, path: str) -> None:
        inode.handle = self.backing.open(path, create=True)
        inode.handle.truncate(0)
        inode.durable_path = path
        self._owner[path] = inode

    def _settle_directory(self, path: str) -> None:
        """Make the current names in one directory durable."""
        for name, inode in list(self._directory(path).items()):
            if inode is not None:
                self._settle(inode, posixpath.join(path, name), set())
        live = self._directory(path)
        for name in self.backing.listdir(path):
            child = posixpath.join(path, name)
            if name in live or self.backing.isdir(child):
                continue
            owner = self._owner.get(child)
            if owner is not None and owner.path is not None:
                # moved to another directory: settle both ends together
                self._settle(owner, owner.path, set())
            else:
                self._owner.pop(child, None)
                if owner is not None:
                    owner.durable_path = None
                self.backing.unlink(child)
        self.backing.fsync_dir(path)

    def _settle(self, inode: _Inode, path: str, moving: set[int]) -> None:
        """Give one file the durable name `path`; a file that still holds the name is moved away."""
        if inode.durable_path == path:
            return
        moving.add(id(inode))
        holder = self._owner.get(path)
        if holder is not None and holder is not inode:
            if holder.path is None:
                holder.durable_path = None
            elif id(holder) in moving:
                self._move(holder, path + ".cycle")
            else:
                self._settle(holder, holder.path, moving)
            self._owner.pop(path, None)
        if inode.durable_path is None:
            self._make_durable(inode, path)
        else:
            self._move(inode, path)

    def _move(self, inode: _Inode, path: str) -> None:
        assert inode.durable_path is not None
        self.backing.rename(inode.durable_path, path)
        self._owner.pop(inode.durable_path, None)
        self._owner[path] = inode
        inode.durable_path = path

    def after_power_cut(self, path: str) -> tuple[int, int]:
        """Return (bytes that `crash` would leave unchanged, size after it).

        The size is larger than the first number if a truncation was not flushed.
        """
        inode = self._existing(path)
        if inode.durable_path != normal_path(path):
            return 0, 0
        return inode.base, self.handle(inode).size()

    def crash(self, rng: random.Random | None = None) -> None:
        """Cut the power. Every later operation on this overlay raises Crashed.

        Without `rng`, exactly the promised state survives. With it, the disk may have been early:
        some names became durable without an fsync, and a prefix of the unflushed bytes is there,
        perhaps with a page of zeros in it (a torn write).
        """
        if self._off:
            return
        self.on_op = self.on_read = None
        if rng is not None:
            for path in sorted(self._entries):
                if self.backing.isdir(path) and rng.random() < 0.5:
                    self._settle_directory(path)
            for path in sorted(self._owner):
                self._tear(self._owner[path], rng)
        self._off = True
        for work in self._working:
            coroutine = cast(Coroutine[Any, Any, Any], work.get_coro())
            if getcoroutinestate(coroutine) == CORO_CREATED:
                coroutine.close()  # a dead process never starts it
        self.release_locks()
        for inode in self._owner.values():
            if inode.handle is not None:
                inode.handle.close()

    def _tear(self, inode: _Inode, rng: random.Random) -> None:
        handle = self.handle(inode)
        if handle.size() > inode.base:
            if rng.random() < 0.5:
                return  # the truncation did not reach the disk, so no later write did
            handle.truncate(inode.base)
        if not inode.tail or rng.random() < 0.5:
            return
        torn = inode.tail[: rng.randint(0, len(inode.tail))]
        if len(torn) > _PAGE_BYTES and rng.random() < 0.25:
            start = rng.randrange(0, len(torn), _PAGE_BYTES)
            torn[start : start + _PAGE_BYTES] = bytes(len(torn[start : start + _PAGE_BYTES]))
        handle.append(torn)

    # Other calls -----------------------------------------------------------------------------

    async def flush_dir(self, path: str) -> None:
        await self.run(self.fsync_dir, path)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        if self.before_work is None:
            self.alive()
            return function(*args)
        # A cancelled caller does not stop the work, as with a worker thread.
        work = asyncio.ensure_future(self._work(self.before_work, function, args))
        self._working[work] = None
        work.add_done_callback(self._worked)
        return await asyncio.shield(work)

    async def _work(
        self,
        before_work: Callable[[], Awaitable[None]],
        function: Callable[..., T],
        args: Sequence[object],
    ) -> T:
        await before_work()
        self.alive()
        return function(*args)

    def _worked(self, work: asyncio.Task[Any]) -> None:
        del self._working[work]
        if not work.cancelled():
            work.exception()  # mark as retrieved: a remaining waiter still gets it

    async def pread(self, file: File, size_bytes: int, position: int) -> bytes:
        if self.before_work is not None:
            await self.before_work()
        return file.pread(size_bytes, position)

    def is_cached(self, file: File, size_bytes: int, position: int) -> bool:
        return False

    def lock(self, path: str) -> Callable[[], None]:
        self.alive()
        release = self.backing.lock(path)
        self._locks.append(release)
        directory, name = split_path(normal_path(path))
        if directory in self._entries and self._entries[directory].get(name) is None:
            inode = _Inode(path, path, self.backing.size(path), self.now_ms())
            self._entries[directory][name] = inode
            self._owner[path] = inode
        return release

    def release_locks(self) -> None:
        """Release the locks of a process that died while its machine lives on."""
        self.opened.clear()
        while self._locks:
            self._locks.pop()()

    def disk_usage(self, path: str) -> tuple[int, int]:
        return self.backing.disk_usage(path)

    def close(self) -> None:
        """Close the backing's files. Unflushed content is lost, as after a kill."""
        for inode in self._owner.values():
            if inode.handle is not None:
                inode.handle.close()
                inode.handle = None
