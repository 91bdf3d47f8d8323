"""Overlay that adds delays to a disk, for stalls (reliability F16).

Operations that the page cache serves stay immediate: appends, and reads of recent writes.
Operations that wait for the disk wait here as well: a flush `flush_ms`, a cold read `read_ms`. The
disk flushes one batch at a time; requests that arrive during a flush share the next one, as on a
real disk.

A blocking call (`fsync`, `fsync_dir`, `write_atomic`, `read`) blocks its caller, and so the event
loop if that is the caller: code that must not wait for a disk shows as loop lag.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from storage.files.port import File, Files

T = TypeVar("T")


class _Batch:
    """Files to flush together. `done` is False if the task that flushed them was cancelled."""

    __slots__ = ("done", "files")

    def __init__(self) -> None:
        self.files: dict[File, None] = {}
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class SlowFiles:
    """Files over `backing`, whose own speed does not change.

    Args:
        flush_ms: duration of a flush, and of every blocking call that must reach the disk.
        read_ms: duration of a read off the event loop, and of a read of a whole file.
        block: blocks for the given seconds; must not block in virtual time.
    """

    def __init__(
        self,
        backing: Files,
        *,
        flush_ms: float,
        read_ms: float,
        block: Callable[[float], None] = time.sleep,
    ) -> None:
        self.backing = backing
        self._times_s = (flush_ms / 1000.0, read_ms / 1000.0)
        self._flush_s, self._read_s = self._times_s
        self._block = block
        self._disk = asyncio.Lock()
        self._next: _Batch | None = None

    @property
    def slow(self) -> bool:
        """True while the delays apply."""
        return (self._flush_s, self._read_s) == self._times_s

    @slow.setter
    def slow(self, slow: bool) -> None:
        self._flush_s, self._read_s = self._times_s if slow else (0.0, 0.0)

    # Calls that wait for the disk ------------------------------------------------------------

    async def flush(self, files: Sequence[File]) -> None:
        while not await self._flush_with_others(files):
            pass
        # everything is flushed; this raises the failures of these files
        await self.backing.flush(files)

    async def _flush_with_others(self, files: Sequence[File]) -> bool:
        """Flush together with the callers that request it before it begins.

        Returns False if the flush was cancelled.
        """
        batch = self._next
        if batch is not None:
            batch.files.update(dict.fromkeys(files))
            return await asyncio.shield(batch.done)
        batch = self._next = _Batch()
        batch.files.update(dict.fromkeys(files))
        whole = False
        try:
            async with self._disk:
                self._next = None
                await asyncio.sleep(self._flush_s)
                whole = True
        finally:
            if self._next is batch:
                self._next = None
            batch.done.set_result(whole)
        return whole

    async def flush_dir(self, path: str) -> None:
        await self.run(self.fsync_dir, path)

    async def pread(self, file: File, size_bytes: int, position: int) -> bytes:
        await asyncio.sleep(self._read_s)
        return await self.backing.pread(file, size_bytes, position)

    def is_cached(self, file: File, size_bytes: int, position: int) -> bool:
        return False

    async def run(self, function: Callable[..., T], *args: object) -> T:
        if getattr(function, "__self__", None) is not self:
            return await self.backing.run(function, *args)
        name = function.__name__
        await asyncio.sleep(self._read_s if name == "read" else self._flush_s)
        return cast(T, await self.backing.run(getattr(self.backing, name), *args))

    def fsync(self, file: File) -> None:
        self._block(self._flush_s)
        self.backing.fsync(file)

    def fsync_dir(self, path: str) -> None:
        self._block(self._flush_s)
        self.backing.fsync_dir(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self._block(self._flush_s)
        self.backing.write_atomic(path, data)

    def write_new(self, path: str, data: bytes) -> None:
        self._block(self._flush_s)
        self.backing.write_new(path, data)

    def read(self, path: str) -> bytes:
        data = self.backing.read(path)  # a missing file raises without a delay
        self._block(self._read_s)
        return data

    # Calls that do not wait ------------------------------------------------------------------

    @property
    def shared(self) -> bool:
        return self.backing.shared

    def open(self, path: str, create: bool = False) -> File:
        return self.backing.open(path, create)

    def exists(self, path: str) -> bool:
        return self.backing.exists(path)

    def isdir(self, path: str) -> bool:
        return self.backing.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return self.backing.listdir(path)

    def mkdirs(self, path: str) -> None:
        self.backing.mkdirs(path)

    def rename(self, source: str, target: str) -> None:
        self.backing.rename(source, target)

    def unlink(self, path: str) -> None:
        self.backing.unlink(path)

    def rmtree(self, path: str) -> None:
        self.backing.rmtree(path)

    def size(self, path: str) -> int:
        return self.backing.size(path)

    def modified_ms(self, path: str) -> int:
        return self.backing.modified_ms(path)

    def make_read_only(self, path: str) -> None:
        self.backing.make_read_only(path)

    def touch(self, path: str) -> None:
        self.backing.touch(path)

    def lock(self, path: str) -> Callable[[], None]:
        return self.backing.lock(path)

    def disk_usage(self, path: str) -> tuple[int, int]:
        return self.backing.disk_usage(path)

    def close(self) -> None:
        self.backing.close()
