"""A whole local cluster in processes of its own, by `kraftbox up`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from kraftbox.cli.cluster_view import snapshot
from kraftbox.launcher.place import ClusterPlace

TIMEOUT_S = 60
STATUS_MS = 1_000.0


class KraftboxCluster:
    """`kraftbox up` with the given options in `directory`, in the foreground of a process."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.bootstrap = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> KraftboxCluster:
        """Start and wait until it is ready. Raises: RuntimeError with its output otherwise."""
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--dir", str(self.directory), *self.options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("bootstrap.servers="):
            _, complaint = self.process.communicate()
            self.process = None
            raise RuntimeError(f"first line {line!r}\n{complaint}")
        self.bootstrap = line.strip().partition("=")[2]
        return self

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run any command of `kraftbox`."""
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            input=stdin,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def command(self, *arguments: str) -> str:
        """Run a command about this cluster that must succeed. Returns: its standard output."""
        done = self.run(*arguments, "--dir", str(self.directory))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Return the snapshot that `kraftbox status --json` prints."""
        return snapshot(ClusterPlace(self.directory), STATUS_MS)

    def node(self, node_id: int) -> dict[str, Any]:
        """Return one node as `status` shows it."""
        return next(node for node in self.status()["nodes"] if node["id"] == node_id)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal to the supervisor. Returns: its exit code and its standard error."""
        process, self.process = self.process, None
        if process is None:
            return 0, ""
        process.send_signal(number)
        _, complaint = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, complaint


COMMAND = [sys.executable, "-m", "kraftbox"]
