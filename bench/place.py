"""A temporary folder for a benchmark's data, which does not remain.

It is removed when the run ends, also after an exception, Ctrl-C or SIGTERM. The next run removes
the folder of a run that was killed with SIGKILL: each folder contains the process ID of its owner.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testkit.processes.ending import end_on_sigterm

PREFIX = "kraftbox-bench-"
OWNER = "owner.pid"
FREE_BYTES_MIN = 12 << 30


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sweep(parent: Path) -> list[Path]:
    """Remove folders whose owners have ended, and return them."""
    gone = []
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            pid = int((folder / OWNER).read_text())
        except (OSError, ValueError):
            continue
        if not _is_alive(pid):
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder)
    return gone


@contextmanager
def bench_place(free_bytes_min: int = FREE_BYTES_MIN) -> Iterator[Path]:
    """Create a new folder below KRAFTBOX_BENCH_DIR or the system's temporary folder.

    Raises SystemExit if the disk has too little free space.
    """
    parent = Path(os.environ.get("KRAFTBOX_BENCH_DIR") or tempfile.gettempdir())
    sweep(parent)
    free = shutil.disk_usage(parent).free
    if free < free_bytes_min:
        raise SystemExit(
            f"{parent} has {free >> 30} GiB free, {free_bytes_min >> 30} are needed; "
            "KRAFTBOX_BENCH_DIR names another place"
        )
    place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    (place / OWNER).write_text(str(os.getpid()))
    end_on_sigterm()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
