"""File descriptors: how many the process may have, and who may use how many of them.

Files give theirs back when others need them (`storage.files`), connections cannot. So each side
has a share, and a few are kept for everything else: listening sockets, the loop, other nodes.
"""

from __future__ import annotations

import contextlib
import resource

FILES_MAX = 4096
RESERVE_MIN = 64
RAISED_MAX = 1 << 20
"""Above this, things that go through all possible descriptors get slow."""


def limit() -> int:
    """How many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return RAISED_MAX if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Ask for as many as the operator allows; the usual first limit is made for small programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = RAISED_MAX if hard == resource.RLIM_INFINITY else min(hard, RAISED_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # A system may refuse what it says it allows; the old limit is good enough then.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def files_share() -> int:
    """How many the log's files may use by default."""
    return min(FILES_MAX, limit() // 2)


def connections_share(files: int) -> int:
    """How many connections there may be when files use so many."""
    total = limit()
    reserve = max(RESERVE_MIN, total // 32)
    return max(total - files - reserve, 1)
