"""Implementation of the file port on the operating system.

Descriptors are a budget: a broker with thousands of partitions has more files than the process may
have open. Each RealFile opens its descriptor when it needs one. When the budget is spent, the least
recently used descriptors are closed; a file that worker threads are using is pinned.

Flushes are a group commit. While one batch of fdatasync calls runs in the flush threads, further
requests are collected; when it ends, they form the next batch, each file once. Flushes of
directories work the same way. A large batch (a stop with thousands of partitions) is shared by
several threads, since the file system joins their calls into few writes of its own. It is flushed
in portions that respect the descriptor budget.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, TypeVar

from runtime.descriptors import files_share
from storage.files.open_paths import OpenPaths
from storage.files.port import Buffer, DirectoryLocked, File
from storage.files.reserve import OUT_OF_DESCRIPTORS, Reserve

T = TypeVar("T")
_SyncJob: TypeAlias = "asyncio.Future[list[OSError | None]]"

FD_BUDGET_MIN = 16
EVICTED_TOGETHER = 8
"""Files to close when the process has no descriptor left: a new segment needs four."""
WORKERS = 8
FLUSH_THREADS = 16
FLUSHES_PER_THREAD = 8
FLUSHED_TOGETHER = FLUSH_THREADS * 16
_IOV_MAX = 512
_WRITE_MAX_BYTES = 1 << 30
_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)

_locked_paths: set[str] = set()
"""fcntl locks do not exclude within one process; this set does."""


READ_AHEAD_BYTES = 4 << 20
PROBE_STEP_BYTES = 128 << 10
"""Distance between probes of the page cache: the kernel caches pages in longer runs."""
_can_probe = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")
_probe = bytearray(1)


class RealFile:
    """A file by path; its descriptor is opened on demand and may be closed between uses."""

    __slots__ = (
        "_closing", "_dirty", "_failure", "_fd", "_files", "_fresh", "_pins", "_size", "_used",
        "path",
    )  # fmt: skip

    def __init__(self, files: RealFiles, path: str, create: bool) -> None:
        self.path = path
        self._files = files
        self._used = files.used
        self._fd = -1
        self._pins = 0
        self._closing = False
        self._failure: OSError | None = None
        self._fresh = create and not os.path.exists(path)
        # Existing content may be in the page cache only, left by a process that was killed.
        self._dirty = not self._fresh
        self._size = 0
        self._size = os.fstat(self.descriptor(create)).st_size

    def descriptor(self, create: bool = False) -> int:
        """Return the descriptor; open it again if it was closed."""
        fd = self._fd
        if fd >= 0:
            self._used(self)
            return fd
        if self._closing:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        try:
            fd = self._files.open_to_keep(self.path, flags)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS):
                raise
            fd = self._files.open_to_keep(self.path, os.O_RDONLY)
        self._fd = fd
        self._files.opened(self)
        return fd

    def append(self, data: Buffer) -> int:
        if self._failure is not None:
            self.check()
        position = self._size
        size = len(data)
        fd = self.descriptor()
        self._dirty = True
        try:
            written = os.pwrite(fd, data, position)
            while written < size:
                written += os.pwrite(fd, memoryview(data)[written:], position + written)
        except OSError:
            self._cut_back(fd, position)
            raise
        self._size = position + size
        return position

    def append_many(self, parts: Sequence[Buffer]) -> int:
        if len(parts) == 1:
            return self.append(parts[0])
        self.check()
        position = self._size
        size = sum(map(len, parts))
        if len(parts) > _IOV_MAX or size > _WRITE_MAX_BYTES:
            return self._append_each(parts)
        fd = self.descriptor()
        self._dirty = True
        try:
            written = os.pwritev(fd, parts, position)
            if written < size:
                rest = b"".join(parts)
                while written < size:
                    written += os.pwrite(fd, memoryview(rest)[written:], position + written)
        except OSError:
            self._cut_back(fd, position)
            raise
        self._size = position + size
        return position

    def _append_each(self, parts: Sequence[Buffer]) -> int:
        position = self._size
        try:
            for part in parts:
                self.append(part)
        except OSError:
            self._cut_back(self.descriptor(), position)
            self._size = position
            raise
        return position

    def _cut_back(self, fd: int, position: int) -> None:
        try:
            os.ftruncate(fd, position)
        except OSError:
            # The torn tail stays. The log refuses further appends, and recovery truncates it.
            return

    def pread(self, size_bytes: int, position: int) -> bytes:
        fd = self.descriptor()
        data = os.pread(fd, size_bytes, position)
        if len(data) < size_bytes and position + len(data) < self._size:
            # A signal or the 2 GiB limit cut the call short, not the end of the file.
            parts = [data]
            got = len(data)
            while got < size_bytes:
                part = os.pread(fd, size_bytes - got, position + got)
                if not part:
                    break
                parts.append(part)
                got += len(part)
            return b"".join(parts)
        return data

    def pwrite(self, data: Buffer, position: int) -> None:
        self.check()
        fd = self.descriptor()
        self._dirty = True
        written = 0
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], position + written)
        self._size = max(self._size, position + len(data))

    def truncate(self, size_bytes: int) -> None:
        self.check()
        os.ftruncate(self.descriptor(), size_bytes)
        self._dirty = True
        self._size = size_bytes

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._closing = True
        if self._pins == 0:
            self.release()
        self._files.forgotten(self)

    def release(self) -> None:
        """Close the descriptor; the next use opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def moved(self, path: str) -> None:
        """Note the new path after a rename, for the next time the file is opened."""
        self.path = path

    def pin(self) -> int:
        """Keep the descriptor open until `unpin`, and return it."""
        fd = self.descriptor()
        self._pins += 1
        return fd

    def unpin(self) -> None:
        self._pins -= 1
        if self._pins == 0 and self._closing:
            self.release()

    @property
    def pinned(self) -> bool:
        return self._pins > 0

    @property
    def closed(self) -> bool:
        return self._closing

    @property
    def dirty(self) -> bool:
        return self._dirty

    def sync_begins(self) -> bool:
        """Mark the content written so far as being flushed. Returns True if the directory must be
        flushed too: the file is new.
        """
        self._dirty = False
        fresh, self._fresh = self._fresh, False
        return fresh

    def poison(self, error: OSError) -> None:
        self._failure = error

    def check(self) -> None:
        """Check that no flush of this file has failed. Raises OSError if one has."""
        if self._failure is not None:
            raise OSError(
                self._failure.errno, f"an earlier flush failed: {self._failure.strerror}", self.path
            )


class _FlushBatch:
    """Files that are flushed together; `done` resolves for all callers that wait for them."""

    __slots__ = ("done", "files")

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.files: set[RealFile] = set()
        self.done = done


def _read_ahead(fd: int, size_bytes: int, position: int) -> bytes:
    """Run `os.pread` for a sequential reader: the kernel prefetches what follows."""
    data = os.pread(fd, size_bytes, position)
    if len(data) == size_bytes:
        _will_need(fd, position + size_bytes)
    return data


def _will_need(fd: int, position: int) -> None:
    """Request that the kernel prefetch the bytes from `position` on."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)


def _has_page(fd: int, position: int) -> bool:
    """Return whether the page cache has this byte of the file (Linux only).

    Raises OSError if the file system does not support the probe.
    """
    try:
        os.preadv(fd, [_probe], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


class _NamesBatch:
    """Directories that are flushed together; `done` resolves to the failures by path."""

    __slots__ = ("directories", "done")

    def __init__(self, done: asyncio.Future[dict[str, OSError]]) -> None:
        self.directories: dict[str, None] = {}
        self.done = done


class RealFiles:
    """Files of the operating system, within a budget of descriptors.

    Args:
        fd_budget: how many descriptors may be open at once; None uses half of the process limit, at
        most 4096 (the other half is for sockets).
    """

    shared = True

    def __init__(self, fd_budget: int | None = None) -> None:
        self._budget = max(FD_BUDGET_MIN, fd_budget if fd_budget is not None else files_share())
        self._open: OrderedDict[RealFile, None] = OrderedDict()
        self.used: Callable[[RealFile], None] = self._open.move_to_end
        """Called for each use of an open file: the least recently used is closed first."""
        self._known: OpenPaths[RealFile] = OpenPaths()
        self._fresh_directories: dict[str, set[str]] = {}
        """New directories whose entries are not durable, by parent directory."""
        self._running: _FlushBatch | None = None
        self._next: _FlushBatch | None = None
        self._next_names: _NamesBatch | None = None
        self._flushing_names = False
        self._flusher: ThreadPoolExecutor | None = None
        self._workers: ThreadPoolExecutor | None = None
        self._reserve = Reserve()

    # Descriptors -----------------------------------------------------------------------------

    @property
    def open_descriptors(self) -> int:
        return len(self._open)

    def opened(self, file: RealFile) -> None:
        self._open[file] = None
        if len(self._open) > self._budget:
            self._evict(len(self._open) - self._budget)

    def open_to_keep(self, path: str, flags: int) -> int:
        """Call `os.open`; if the process has no descriptor left, first close the least recently
        used files (F36).
        """
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
        if self._open:
            self._evict(EVICTED_TOGETHER)
        return self._reserve.open(path, flags)

    def _evict(self, excess: int) -> None:
        newest = next(reversed(self._open))
        victims = []
        for file in self._open:
            if not file.pinned and file is not newest:
                victims.append(file)
                if len(victims) >= excess:
                    break
        for file in victims:
            del self._open[file]
            file.release()

    def forgotten(self, file: RealFile) -> None:
        self._open.pop(file, None)
        self._known.discard(file)

    # Files and directories -------------------------------------------------------------------

    def open(self, path: str, create: bool = False) -> RealFile:
        file = RealFile(self, path, create)
        self._known.add(file)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def isdir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdirs(self, path: str) -> None:
        if os.path.isdir(path):
            return
        # Entries of new directories become durable with the first flush of a file in them.
        missing = os.path.abspath(path)
        while not os.path.isdir(missing):
            parent = os.path.dirname(missing)
            self._fresh_directories.setdefault(parent, set()).add(missing)
            missing = parent
        # Only the node's user may read records, and the metadata log, which contains settings.
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)
        self._known.move(source, target)
        # The caller is responsible for the durability of the new name.
        self._no_longer_fresh(os.path.abspath(source))

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        self._no_longer_fresh(os.path.abspath(path))
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if os.path.exists(path):
                raise

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes:
        fd = self._reserve.open(path, os.O_RDONLY)
        try:
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            self._reserve.close(fd)

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        self.write_new(temporary, data)
        os.replace(temporary, path)
        for directory in self._directories_of(path):
            _sync_dir(self._reserve, directory)

    def write_new(self, path: str, data: bytes) -> None:
        fd = self._reserve.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            written = 0
            while written < len(data):
                written += os.write(fd, memoryview(data)[written:])
            _fdatasync(fd)
        finally:
            self._reserve.close(fd)

    def make_read_only(self, path: str) -> None:
        os.chmod(path, 0o400)

    def touch(self, path: str) -> None:
        self._reserve.close(self._reserve.open(path, os.O_WRONLY | os.O_CREAT))

    # Durability ------------------------------------------------------------------------------

    def fsync(self, file: File) -> None:
        assert isinstance(file, RealFile)
        file.check()
        if not file.dirty and not file.pinned:
            return
        fresh = file.sync_begins()
        directories = self._directories_of(file.path) if fresh else ()
        error = _sync_one(self._reserve, file.descriptor(), directories)
        if error is not None:
            file.poison(error)
            raise error

    def fsync_dir(self, path: str) -> None:
        for directory in self._directories_down_to(path):
            _sync_dir(self._reserve, directory)

    def _directories_down_to(self, path: str) -> list[str]:
        return self._and_fresh_parents(os.path.abspath(path))

    def _directories_of(self, path: str) -> list[str]:
        """Return the directories to flush so that a file's entry is durable.

        These are its own directory and, above it, each parent of a directory that is new.
        """
        return self._and_fresh_parents(os.path.dirname(os.path.abspath(path)))

    def _and_fresh_parents(self, directory: str) -> list[str]:
        directories = [directory]
        while self._is_fresh(directory):
            parent = os.path.dirname(directory)
            self._forget_fresh(parent, directory)
            directory = parent
            directories.append(directory)
        return directories

    def _is_fresh(self, directory: str) -> bool:
        return directory in self._fresh_directories.get(os.path.dirname(directory), ())

    def _forget_fresh(self, parent: str, directory: str) -> None:
        siblings = self._fresh_directories.get(parent)
        if siblings is not None:
            siblings.discard(directory)
            if not siblings:
                self._fresh_directories.pop(parent, None)

    def _no_longer_fresh(self, directory: str) -> None:
        """Forget a directory that was removed or renamed, with all new directories in it."""
        self._forget_fresh(os.path.dirname(directory), directory)
        for inner in self._fresh_directories.pop(directory, ()):
            self._no_longer_fresh(inner)

    async def flush(self, files: Sequence[File]) -> None:
        running = self._running
        waits: list[asyncio.Future[None]] = []
        wanted: list[RealFile] = []
        for file in files:
            assert isinstance(file, RealFile)
            file.check()
            if file.dirty:
                wanted.append(file)
            elif running is not None and file in running.files and not waits:
                waits.append(running.done)
        if wanted:
            waits.append(self._join_next_batch(wanted))
        for done in waits:
            await asyncio.shield(done)
        for file in files:
            assert isinstance(file, RealFile)
            file.check()

    def _join_next_batch(self, wanted: Iterable[RealFile]) -> asyncio.Future[None]:
        if self._next is None:
            self._next = _FlushBatch(asyncio.get_running_loop().create_future())
        batch = self._next
        batch.files.update(wanted)
        if self._running is None:
            self._start_batch()
        return batch.done

    def _start_batch(self) -> None:
        batch, self._next = self._next, None
        self._running = batch
        if batch is not None:
            self._flush_some(batch, list(batch.files))

    def _flush_some(self, batch: _FlushBatch, left: list[RealFile]) -> None:
        """Flush a portion of the files that are `left` of the batch."""
        work: list[tuple[RealFile, int, Sequence[str]]] = []
        limit = min(FLUSHED_TOGETHER, self._budget // 2)
        while left and len(work) < limit:
            file = left.pop()
            if file.closed:
                continue  # deleted or truncated away after the request: nothing to keep
            try:
                fd = file.pin()
            except OSError as error:
                file.poison(error)
                continue
            fresh = file.sync_begins()
            work.append((file, fd, self._directories_of(file.path) if fresh else ()))
        loop, flusher = asyncio.get_running_loop(), self._flush_threads()
        share = max(FLUSHES_PER_THREAD, -(-len(work) // FLUSH_THREADS))
        shares = [work[at : at + share] for at in range(0, len(work), share)] or [[]]
        under_way = len(shares)

        def share_done(mine: list[tuple[RealFile, int, Sequence[str]]], job: _SyncJob) -> None:
            nonlocal under_way
            _settle(mine, job)
            under_way -= 1
            if not under_way:
                self._portion_done(batch, [] if job.cancelled() else left)

        for mine in shares:
            todo = [(fd, directories) for _, fd, directories in mine]
            job = loop.run_in_executor(flusher, _sync_all, self._reserve, todo)
            job.add_done_callback(partial(share_done, mine))

    def _flush_threads(self) -> ThreadPoolExecutor:
        if self._flusher is None:
            self._flusher = ThreadPoolExecutor(FLUSH_THREADS, "kraftbox-flush")
        return self._flusher

    def _portion_done(self, batch: _FlushBatch, left: list[RealFile]) -> None:
        if left:
            self._flush_some(batch, left)
            return
        if not batch.done.done():
            batch.done.set_result(None)  # each waiter checks its own files for poison
        self._start_batch()

    async def flush_dir(self, path: str) -> None:
        batch = self._next_names
        if batch is None:
            batch = self._next_names = _NamesBatch(asyncio.get_running_loop().create_future())
        directories = self._directories_down_to(path)
        batch.directories.update(dict.fromkeys(directories))
        if not self._flushing_names:
            self._flush_names()
        failed = await asyncio.shield(batch.done)
        for directory in directories:
            if directory in failed:
                raise failed[directory]

    def _flush_names(self) -> None:
        """Start flushing the directories that were requested in the meantime, if any."""
        batch, self._next_names = self._next_names, None
        self._flushing_names = batch is not None
        if batch is None:
            return
        loop, flusher = asyncio.get_running_loop(), self._flush_threads()
        paths, share = list(batch.directories), FLUSHES_PER_THREAD
        shares = [paths[at : at + share] for at in range(0, len(paths), share)]
        sync = partial(_sync_dirs, self._reserve)
        jobs = asyncio.gather(*(loop.run_in_executor(flusher, sync, mine) for mine in shares))

        def flushed(done: asyncio.Future[list[dict[str, OSError]]]) -> None:
            if done.cancelled():
                batch.done.cancel()
            elif not batch.done.done():
                batch.done.set_result({path: e for one in done.result() for path, e in one.items()})
            self._flush_names()

        jobs.add_done_callback(flushed)

    # Workers ---------------------------------------------------------------------------------

    async def run(self, function: Callable[..., T], *args: object) -> T:
        workers = self._file_workers()
        return await asyncio.get_running_loop().run_in_executor(workers, function, *args)

    def _file_workers(self) -> ThreadPoolExecutor:
        if self._workers is None:
            self._workers = ThreadPoolExecutor(WORKERS, "kraftbox-files")
        return self._workers

    async def pread(self, file: File, size_bytes: int, position: int) -> bytes:
        assert isinstance(file, RealFile)
        fd = file.pin()
        try:
            return await self.run(_read_ahead, fd, size_bytes, position)
        finally:
            file.unpin()

    def is_cached(self, file: File, size_bytes: int, position: int) -> bool:
        assert isinstance(file, RealFile)
        if not _can_probe or size_bytes <= 0:
            return False
        end, fd = position + size_bytes, file.descriptor()
        try:
            if not _has_page(fd, end - 1):
                return False
            for at in range(position, end, PROBE_STEP_BYTES):
                if not _has_page(fd, at):
                    return False
            ahead = min(end + READ_AHEAD_BYTES // 2, file.size() - 1)
            if ahead >= end and not _has_page(fd, ahead):
                self._fetch_ahead(file, end)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            return False
        return True

    def _fetch_ahead(self, file: RealFile, position: int) -> None:
        """Run `_will_need` in a worker, since it blocks while the disk is busy; no caller waits."""
        workers = self._file_workers()
        fd = file.pin()
        job = asyncio.get_running_loop().run_in_executor(workers, _will_need, fd, position)

        def over(done: asyncio.Future[None]) -> None:
            file.unpin()
            if not done.cancelled():
                done.exception()  # advice only: a failure has no effect

        job.add_done_callback(over)

    # Locks and space -------------------------------------------------------------------------

    def lock(self, path: str) -> Callable[[], None]:
        real = os.path.realpath(path)
        if real in _locked_paths:
            raise DirectoryLocked(errno.EWOULDBLOCK, "held by another node of this process", path)
        # Java's FileChannel.tryLock is an fcntl lock too, so Kafka and Kraftbox exclude each other.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise DirectoryLocked(error.errno, "held by another process", path) from None
            raise
        _locked_paths.add(real)

        def release() -> None:
            if real in _locked_paths:
                _locked_paths.discard(real)
                os.close(fd)

        return release

    def disk_usage(self, path: str) -> tuple[int, int]:
        usage = shutil.disk_usage(path)
        return usage.total, usage.free

    def close(self) -> None:
        for pool in (self._flusher, self._workers):
            if pool is not None:
                pool.shutdown(wait=True)
        self._flusher = self._workers = None
        for file in list(self._open):
            file.release()
        self._open.clear()
        self._reserve.release()


def _settle(work: list[tuple[RealFile, int, Sequence[str]]], job: _SyncJob) -> None:
    """Poison the files whose flush failed, and unpin them all."""
    results = [None] * len(work) if job.cancelled() else job.result()
    for (file, _, _), error in zip(work, results, strict=True):
        if error is not None:
            file.poison(error)
        file.unpin()


def _sync_dir(reserve: Reserve, path: str) -> None:
    fd = reserve.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        reserve.close(fd)


def _sync_dirs(reserve: Reserve, paths: Sequence[str]) -> dict[str, OSError]:
    """Fsync directories in a flush thread, and return the failures by path.

    The first fsync usually writes the changes of the others, too.
    """
    failed: dict[str, OSError] = {}
    for path in paths:
        try:
            _sync_dir(reserve, path)
        except OSError as error:
            failed[path] = error
    return failed


def _sync_one(reserve: Reserve, fd: int, directories: Sequence[str]) -> OSError | None:
    try:
        _fdatasync(fd)
        for path in directories:
            _sync_dir(reserve, path)
    except OSError as error:
        return error
    return None


def _sync_all(reserve: Reserve, work: list[tuple[int, Sequence[str]]]) -> list[OSError | None]:
    """Sync each descriptor in a flush thread, and each directory of new files once."""
    results = [_sync_one(reserve, fd, ()) for fd, _ in work]
    failed = _sync_dirs(reserve, list({path for _, paths in work for path in paths}))
    return [
        result or next((failed[path] for path in paths if path in failed), None)
        for result, (_, paths) in zip(results, work, strict=True)
    ]
