"""Shell: `kraftbox up --detach`, the same in a session of its own once it is ready."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from kraftbox.launcher.handed_settings import handed, without_settings
from kraftbox.launcher.interpreter import own_command


def detach(arguments: Sequence[str], settings: Mapping[str, str]) -> int:
    """Run `up` with these arguments in a session of its own; return when it is ready.

    `settings` are those of the arguments, which that process's command line must not show.
    """
    process = subprocess.Popen(
        own_command("up", *without_settings(arguments), "--detached"),
        env=handed(settings, os.environ),
        # Whoever holds the other end of a lifeline owns the cluster.
        stdin=None if "--lifeline" in arguments else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    # Both ends close when it is ready or has failed.
    told, complaint = _read_both(process)
    sys.stderr.write(complaint)
    first, _, rest = told.partition("\n")
    if not first.startswith("bootstrap.servers="):
        return process.wait() or 1
    sys.stdout.write(rest if sys.stdout.isatty() else told)
    # It outlives this process, and is nobody's zombie then.
    process.returncode = 0
    return 0


def _read_both(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        # There is little on standard error, so that reading in turn cannot block the writer.
        return process.stdout.read(), process.stderr.read()
