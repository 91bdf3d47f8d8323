"""Shell: First steps of a cluster's start, before anything else is imported.

The fork server's imports take longer than everything else before the first node, so that nothing
that can be imported meanwhile is imported here.
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
"""Where system libraries do not survive a fork."""


def take(root: str) -> int | None:
    """The directory's lock as a descriptor, or None while somebody else has it. Raises OSError."""
    fd = os.open(f"{root}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def open_log(root: str) -> int:
    """A descriptor that appends to the supervisor's log. Raises OSError."""
    return os.open(f"{root}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def start_fork_server(
    log_fd: int, lock_fd: int | None = None, *, spawn: bool | None = None
) -> subprocess.Popen[bytes]:
    """The process, which shares the lock. `spawn` None decides by the platform. Raises OSError."""
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
        # A terminal's Ctrl-C is the supervisor's to understand.
        start_new_session=True,
        pass_fds=() if lock_fd is None else (lock_fd,),
    )


class Early:
    """What is there before the rest is imported: the lock, the log, the fork server."""

    def __init__(self, directory: str) -> None:
        """Raises OSError, and StartupRefused for the log directory of another node. `fork_server`
        is None when the directory is taken."""
        self.root = os.path.abspath(directory)
        _refuse_foreign(self.root)
        self._made_root = not os.path.isdir(self.root)
        self._is_first = not os.path.exists(f"{self.root}/{LOCK}")
        # Settings, logs and data are for the user who starts the cluster.
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        self.lock_fd = take(self.root)
        self.log_fd = open_log(self.root)
        self.fork_server: subprocess.Popen[bytes] | None = None
        if self.lock_fd is not None:
            self.fork_server = start_fork_server(self.log_fd, self.lock_fd)

    def take_back(self) -> None:
        """Leave a directory in which nothing could be started as it was before. The fork server
        has ended."""
        if not self._is_first or self.lock_fd is None:
            return
        with contextlib.suppress(OSError):
            if not os.path.getsize(f"{self.root}/{LOG}"):
                os.unlink(f"{self.root}/{LOG}")
            os.unlink(f"{self.root}/{LOCK}")
            if self._made_root:
                os.rmdir(self.root)


def _refuse_foreign(root: str) -> None:
    """Raises StartupRefused for a log directory that no start of ours has made its own."""
    if os.path.exists(f"{root}/meta.properties") and not any(
        os.path.exists(f"{root}/{name}") for name in OURS
    ):
        from runtime.errors import StartupRefused

        raise StartupRefused(f"{root} is a log directory of another node: use `kraftbox server`")
