"""Shell: Register of the user's running clusters, so that other commands find them without --dir.

A supervisor creates a symbolic link to its directory and removes it when the cluster is down. A
link holds no state: addresses and nodes come from the supervisor itself. A link whose directory no
process has locked is stale (the supervisor was killed, or the directory was deleted); `clusters`
removes it.

The links are in `$XDG_RUNTIME_DIR/kraftbox`, or without that variable in
`$XDG_STATE_HOME/kraftbox/running` (default: `~/.local/state`). Readers look in both places, because
a cluster may have been started in a session with other variables.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from kraftbox.launcher import early


def folders(environ: Mapping[str, str]) -> list[str]:
    """Return the folders that may hold links; a supervisor uses the first that it can write."""
    found = []
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        found.append(f"{runtime}/kraftbox")
    home = environ.get("HOME") or os.path.expanduser("~")
    state = environ.get("XDG_STATE_HOME") or f"{home}/.local/state"
    return [*found, f"{state}/kraftbox/running"]


@contextlib.contextmanager
def registered(root: str, environ: Mapping[str, str]) -> Iterator[None]:
    """Register the cluster in `root` for the duration of the block.

    A cluster whose user has no writable folder runs without being registered.
    """
    link = _register(root, environ)
    try:
        yield
    finally:
        if link is not None:
            _remove(link, root)


def clusters(environ: Mapping[str, str]) -> list[str]:
    """Return the directories of running clusters, sorted; remove stale links."""
    found = set()
    for folder in folders(environ):
        if not _is_private(folder):
            continue
        for name in os.listdir(folder):
            link = f"{folder}/{name}"
            try:
                root = os.readlink(link)
            except OSError:
                continue
            if _is_locked(root):
                found.add(root)
            else:
                _remove(link, root)
    return sorted(found)


def _register(root: str, environ: Mapping[str, str]) -> str | None:
    """Return the new link, None if no folder can be written."""
    status = os.stat(root)
    for folder in folders(environ):
        link = f"{folder}/{status.st_dev:x}-{status.st_ino:x}"
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if not _is_private(folder):
                continue
            # The device and inode of a deleted directory are used again.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link)
            os.symlink(root, link)
        except OSError:
            continue
        return link
    return None


def _remove(link: str, root: str) -> None:
    """Remove a link, unless it now leads elsewhere."""
    with contextlib.suppress(OSError):
        if os.readlink(link) == root:
            os.unlink(link)


def _is_private(folder: str) -> bool:
    """Return whether this is a folder of the user: others may not add clusters to it."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return os.path.isdir(folder) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _is_locked(root: str) -> bool:
    """Return whether a supervisor or its fork server holds the lock of the directory."""
    if not os.path.exists(f"{root}/{early.LOCK}"):
        return False
    try:
        fd = early.take(root)
    except OSError:
        return False
    if fd is None:
        return True
    os.close(fd)
    return False
