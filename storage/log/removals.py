"""Shell: Removal of renamed files and folders of one log directory, after a delay.

Removals are few at a time, and begin only after the renames are durable: otherwise a power cut
could restore a folder under its old name with half of its files.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final

from runtime.clock import Clock
from storage.files import Files

WORKERS: Final = 2


class Removals:
    """Renamed files and folders that wait for their removal."""

    __slots__ = ("_added", "_clock", "_directory", "_files", "_renamed", "_waiting")

    def __init__(self, files: Files, directory: str, clock: Clock) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        # By due time, then by age.
        self._waiting: list[tuple[float, int, str]] = []
        self._added = 0
        self._renamed = False

    def note_rename(self) -> None:
        """Make the names in the directory durable before the next removal."""
        self._renamed = True

    def add(self, path: str, delay_ms: int) -> None:
        """Remove a file or folder when the delay is over."""
        self._added += 1
        due_ms = self._clock.monotonic_ms() + delay_ms
        heapq.heappush(self._waiting, (due_ms, self._added, path))

    async def run(self, *, at_once: bool = False) -> int:
        """Remove what is due, or all paths if `at_once`. Returns how many. Raises OSError."""
        removed = 0
        while (due := self._take(at_once)) or self._renamed:
            if self._renamed:
                self._renamed = False
                await self._files.run(self._files.fsync_dir, self._directory)
            await asyncio.gather(*(self._files.run(self._remove, path) for path in due))
            removed += len(due)
        return removed

    def _take(self, at_once: bool) -> list[str]:
        now_ms = self._clock.monotonic_ms()
        taken: list[str] = []
        while self._waiting and len(taken) < WORKERS:
            if not at_once and self._waiting[0][0] > now_ms:
                break
            taken.append(heapq.heappop(self._waiting)[2])
        return taken

    def _remove(self, path: str) -> None:
        if self._files.isdir(path):
            self._files.rmtree(path)
        elif self._files.exists(path):
            self._files.unlink(path)
