"""File descriptors of the process: their limit, and its division between files and connections.

Files can give descriptors back when others need them (`storage.files`); connections cannot. So each
side has a share. A reserve is kept for everything else: listening sockets, the event loop, other
nodes.
"""

from __future__ import annotations

import contextlib
import resource

FILES_MAX = 4096
RESERVE_MIN = 64
RAISED_MAX = 1 << 20
"""Above this limit, programs that iterate over all possible descriptors become slow."""


def limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return RAISED_MAX if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Raise the soft limit as far as the operator allows.

    Its usual default suits small programs.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = RAISED_MAX if hard == resource.RLIM_INFINITY else min(hard, RAISED_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # A system may refuse a limit that it reports as allowed; then the old limit stays.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def files_share() -> int:
    """Return how many descriptors log files may use by default."""
    return min(FILES_MAX, limit() // 2)


def connections_share(files: int) -> int:
    """Return the maximum of connections if files use `files` descriptors."""
    total = limit()
    reserve = max(RESERVE_MIN, total // 32)
    return max(total - files - reserve, 1)
