"""Troubles of disks: operations that are refused, flushes that take long, bits that flip."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

HANGING_LOOKS_S = 0.02
WRITES = ("append", "pwrite", "create", "mkdirs")
"""What needs room."""
SYNCS = ("fsync", "fsync_dir")
CHANGES = (*WRITES, *SYNCS, "truncate", "rename", "unlink", "rmtree")


class DiskFault(OSError):
    """An error of a disk that a fault caused, and no mistake of the node."""


def is_disk_fault(error: BaseException | None) -> bool:
    """Whether a fault caused this error, or what it was raised from."""
    while error is not None:
        if isinstance(error, DiskFault):
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass(eq=False)
class DiskTrouble:
    """What one fault does to the disk of one machine, and how often it did.

    Args:
        kinds: operations that are refused: "append", "pwrite", "truncate", "create", "mkdirs",
            "rename", "unlink", "rmtree", "fsync", "fsync_dir", "read".
        code: the errno of the refusal.
        path_has: only files whose path contains this.
        after: so many of those operations are let through first.
        most: so many are refused, None: all.
        flush_ms: so much longer a flush takes, with a worker thread to wait in.
        hangs: flushes come back when this is no longer set.
        then: is called in place of the refusal.
        flips: by path, where a byte is read wrongly, and the bit of it; until the file is cut, or
            gets another name.
    """

    kinds: frozenset[str] = frozenset()
    code: int = 0
    path_has: str = ""
    after: int = 0
    most: int | None = None
    flush_ms: float = 0.0
    hangs: bool = False
    then: Callable[[], None] | None = None
    hits: Counter[str] = field(default_factory=Counter)
    """How often it made which difference: refused, slow, hung, flipped."""
    flips: dict[str, tuple[int, int]] = field(default_factory=dict)

    def strike(self, kind: str, path: str) -> None:
        """Raises DiskFault for an operation that is refused."""
        if kind in ("rename", "truncate"):
            self.flips.pop(path, None)  # what stands there next is another file (seed 7780)
        if kind not in self.kinds or self.path_has not in path:
            return
        if self.after > 0:
            self.after -= 1
            return
        if self.most is not None and self.hits["refused"] >= self.most:
            return
        self.hits["refused"] += 1
        if self.then is not None:
            self.then()
            return
        raise DiskFault(self.code, os.strerror(self.code), path)

    def read(self, path: str, position: int, data: bytes) -> bytes:
        """What a read of flushed content brings."""
        at, bit = self.flips.get(path, (-1, 0))
        at -= position
        if not 0 <= at < len(data):
            return data
        self.hits["flipped"] += 1
        return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]

    async def flushing(self) -> None:
        """Wait as long as a flush takes longer."""
        if self.flush_ms:
            self.hits["slow"] += 1
            await asyncio.sleep(self.flush_ms / 1000)
        if self.hangs:
            self.hits["hung"] += 1
        while self.hangs:  # noqa: ASYNC110 - virtual time, and nobody tells when
            await asyncio.sleep(HANGING_LOOKS_S)
