"""Commands of an environment other than the tests' own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TIMEOUT_S = 300
OURS = ("PYTHONPATH", "CI")
REPOSITORY = Path(__file__).parents[2]

INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of a script ignores it
from kraftbox.__main__ import main
sys.exit(main())
"""
"""Our command as a program that Ctrl-C reaches, wherever the tests run."""


def ended(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without the tests' environment variables and return its result."""
    environment = {key: value for key, value in os.environ.items() if key not in OURS}
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
        cwd=cwd,
    )


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Return the standard output of a command that succeeds."""
    done = ended(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout
