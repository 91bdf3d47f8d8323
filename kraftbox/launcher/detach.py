"""Shell: `kraftbox up --detach`: the same command in a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from kraftbox.launcher.handed_settings import handed, without_settings
from kraftbox.launcher.interpreter import own_command


def detach(arguments: Sequence[str], settings: Mapping[str, str]) -> int:
    """Run `up` with these arguments in a session of its own; return its exit code once it is ready.

    `settings` are the settings among the arguments. They are handed over in the environment,
    because the process's command line must not show them.
    """
    process = subprocess.Popen(
        own_command("up", *without_settings(arguments), "--detached"),
        env=handed(settings, os.environ),
        # The holder of the other end of a lifeline owns the cluster, so the lifeline is inherited.
        stdin=None if "--lifeline" in arguments else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    # The child closes both streams when it is ready or has failed.
    output, complaint = _read_both(process)
    sys.stderr.write(complaint)
    first, _, rest = output.partition("\n")
    if not first.startswith("bootstrap.servers="):
        return process.wait() or 1
    sys.stdout.write(rest if sys.stdout.isatty() else output)
    # The child outlives this process. With its return code set, Popen does not warn about it.
    process.returncode = 0
    return 0


def _read_both(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        # The child writes little to standard error, so reading the streams in turn cannot block it.
        return process.stdout.read(), process.stderr.read()
