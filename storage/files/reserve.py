"""Reserve of descriptors, used when the process has none left (F36).

Connections may take all descriptors, or an operator may lower the limit. Checkpoints must still be
written and directories flushed: each such call briefly uses a descriptor of the reserve.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import Final

RESERVED: Final = 8
"""Usually more than the number of threads that open files at the same time."""
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_PLACE_HOLDER: Final = "/dev/null"


class Reserve:
    """Pool of spare descriptors. Thread-safe."""

    def __init__(self, size: int = RESERVED) -> None:
        self._size = size
        self._held: deque[int] = deque()
        self._refill()

    def open(self, path: str, flags: int) -> int:
        """Call `os.open` for a file that only this process may inherit, using the reserve if
        needed.

        Raises the errors of `os.open`; EMFILE or ENFILE only if the reserve is empty, too.
        """
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, 0o644)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._give():
                    raise

    def close(self, fd: int) -> None:
        """Close a descriptor that `open` returned, and refill the reserve."""
        os.close(fd)
        self._refill()

    def release(self) -> None:
        """Close all reserved descriptors. The reserve stays empty."""
        self._size = 0
        while self._give():
            pass

    def _give(self) -> bool:
        try:
            os.close(self._held.pop())
        except IndexError:
            return False
        return True

    def _refill(self) -> None:
        while len(self._held) < self._size:
            try:
                self._held.append(os.open(_PLACE_HOLDER, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return  # the next close tries again
