"""Shell: First steps of a cluster's start, before other imports.

The fork server's imports take longer than everything else before the first node. This module starts
the fork server first, so it imports nothing that can be imported while the fork server starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys

from kraftbox.launcher.interpreter import own_command

LOCK = ".running"
LOG = "supervisor.log"
OURS = ("cluster.properties", "server.properties")
SPAWN_PLATFORMS = ("darwin",)
"""Platforms on which system libraries do not survive a fork."""


def take(root: str) -> int | None:
    """Lock the directory; return the descriptor, or None if another process holds the lock.

    Raises OSError.
    """
    fd = os.open(f"{root}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def open_log(root: str) -> int:
    """Return a descriptor that appends to the supervisor's log. Raises OSError."""
    return os.open(f"{root}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def start_fork_server(
    log_fd: int, lock_fd: int | None = None, *, spawn: bool | None = None
) -> subprocess.Popen[bytes]:
    """Start the fork server, which shares the lock, and return its process.

    `spawn` None selects by platform. Raises OSError.
    """
    spawn = sys.platform in SPAWN_PLATFORMS if spawn is None else spawn
    arguments = ["--spawn"] if spawn else []
    if lock_fd is not None:
        arguments += ["--lock", str(lock_fd)]
    return subprocess.Popen(
        own_command("_fork-server", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log_fd,
        bufsize=0,
        # The supervisor handles Ctrl-C of the terminal, so the fork server must not receive it.
        start_new_session=True,
        pass_fds=() if lock_fd is None else (lock_fd,),
    )


class Early:
    """Resources acquired before the remaining imports: the lock, the log, the fork server."""

    def __init__(self, directory: str) -> None:
        """Lock the directory and start the fork server; `fork_server` is None if the lock is held.

        Raises OSError, and StartupRefused for the log directory of another node.
        """
        self.root = os.path.abspath(directory)
        _refuse_foreign(self.root)
        self._made_root = not os.path.isdir(self.root)
        self._is_first = not os.path.exists(f"{self.root}/{LOCK}")
        # Only the user who starts the cluster may read its settings, logs and data.
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        self.lock_fd = take(self.root)
        self.log_fd = open_log(self.root)
        self.fork_server: subprocess.Popen[bytes] | None = None
        if self.lock_fd is not None:
            self.fork_server = start_fork_server(self.log_fd, self.lock_fd)

    def take_back(self) -> None:
        """Remove what `__init__` created in a new directory, after a start that failed.

        The fork server must have ended.
        """
        if not self._is_first or self.lock_fd is None:
            return
        with contextlib.suppress(OSError):
            if not os.path.getsize(f"{self.root}/{LOG}"):
                os.unlink(f"{self.root}/{LOG}")
            os.unlink(f"{self.root}/{LOCK}")
            if self._made_root:
                os.rmdir(self.root)


def _refuse_foreign(root: str) -> None:
    """Raise StartupRefused for a log directory that `kraftbox up` did not create."""
    if os.path.exists(f"{root}/meta.properties") and not any(
        os.path.exists(f"{root}/{name}") for name in OURS
    ):
        from runtime.errors import StartupRefused

        raise StartupRefused(f"{root} is a log directory of another node: use `kraftbox server`")
