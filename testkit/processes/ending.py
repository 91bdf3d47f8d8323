"""The end of a program that has started others: SIGTERM runs its clean-up, as Ctrl-C does.

By default SIGTERM ends Python at once: no `finally` runs, and clusters, stores and clients that a
benchmark has started keep running.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

END_S_MAX = 60.0


def end_on_sigterm() -> None:
    """Let SIGTERM raise SystemExit from here on, unless the program has a handler of its own."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: object) -> None:
    # A second SIGTERM must not interrupt the clean-up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.write(f"ended by signal {number}\n")
    raise SystemExit(128 + number)


def output_of(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    end_s_max: float = END_S_MAX,
) -> str:
    """Run a program that starts others. Returns: its standard output.

    An exception ends it with SIGTERM, so that it cleans up; `subprocess.run` would kill it.
    Raises: CalledProcessError for an exit code other than 0.
    """
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            out, _ = process.communicate()
        except BaseException:
            process.terminate()
            try:
                process.wait(end_s_max)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out)
    return out
