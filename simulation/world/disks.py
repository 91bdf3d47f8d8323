"""Faults of disks: file operations that fail, flushes that take long, bits that flip."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

HANGING_LOOKS_S = 0.02
WRITES = ("append", "pwrite", "create", "mkdirs")
"""Operations that need free space."""
SYNCS = ("fsync", "fsync_dir")
CHANGES = (*WRITES, *SYNCS, "truncate", "rename", "unlink", "rmtree")


class DiskFault(OSError):
    """An error of a disk that a fault caused, as opposed to a mistake of the node."""


def is_disk_fault(error: BaseException | None) -> bool:
    """Return whether a fault caused this error, or one in its chain of causes."""
    while error is not None:
        if isinstance(error, DiskFault):
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass(eq=False)
class DiskTrouble:
    """The effects of one fault on the disk of one machine, with their counts.

    Args:
        kinds: operations that fail: "append", "pwrite", "truncate", "create", "mkdirs", "rename",
            "unlink", "rmtree", "fsync", "fsync_dir", "read".
        code: the errno of the failure.
        path_has: only files whose path contains this.
        after: the number of such operations that succeed first.
        most: the number of operations that fail, None: all.
        flush_ms: additional time of a flush, in a worker thread.
        hangs: flushes return once this is not set any more.
        then: is called in place of the failure.
        flips: by path, the position of a byte that is read wrongly, and the bit in it; until the
            file is
            cut or renamed.
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
    """Number of effects by kind: refused, slow, hung, flipped."""
    flips: dict[str, tuple[int, int]] = field(default_factory=dict)

    def strike(self, kind: str, path: str) -> None:
        """Count a file operation. Raises: DiskFault if the operation should fail."""
        if kind in ("rename", "truncate"):
            self.flips.pop(path, None)  # the path then belongs to other content (seed 7780)
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
        """Return the result of a read of flushed content."""
        at, bit = self.flips.get(path, (-1, 0))
        at -= position
        if not 0 <= at < len(data):
            return data
        self.hits["flipped"] += 1
        return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]

    async def flushing(self) -> None:
        """Wait for the additional time of a flush."""
        if self.flush_ms:
            self.hits["slow"] += 1
            await asyncio.sleep(self.flush_ms / 1000)
        if self.hangs:
            self.hits["hung"] += 1
        while self.hangs:  # noqa: ASYNC110 - virtual time, and nobody tells when
            await asyncio.sleep(HANGING_LOOKS_S)
