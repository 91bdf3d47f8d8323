"""Descriptors in reserve, for what must be opened where the process has none left (F36).

Connections may take all there are, or an operator may lower the limit. Checkpoints are written all
the same, and directories flushed: each takes a descriptor of the reserve for a moment.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import Final

RESERVED: Final = 8
"""More than threads that open something at the same time, as a rule."""
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_PLACE_HOLDER: Final = "/dev/null"


class Reserve:
    """May be used by several threads at once."""

    def __init__(self, size: int = RESERVED) -> None:
        self._size = size
        self._held: deque[int] = deque()
        self._refill()

    def open(self, path: str, flags: int) -> int:
        """As `os.open`, of a file for this process alone; raises what that raises, and EMFILE or
        ENFILE only when the reserve is used up, too."""
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, 0o644)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._give():
                    raise

    def close(self, fd: int) -> None:
        """Closes what `open` returned; its place is the reserve's first."""
        os.close(fd)
        self._refill()

    def release(self) -> None:
        """Gives back all that is held."""
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
                return  # another time
