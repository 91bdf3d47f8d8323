"""A Kraftbox node in processes of its own, by `kraftbox up`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace

READY_TIMEOUT_S = 120
"""Far longer than a node needs for its start; a busy machine may make it ten times slower."""


class NodeDidNotStart(RuntimeError):
    """The process ended or stayed silent; the message has its output."""


class KraftboxNode:
    """One `kraftbox up`: a node in a process of its own, and its supervisor.

    `bootstrap` is HOST:PORT once `start` has returned. The data directory outlives the processes,
    so `kill` and `start` again is a crash and a restart.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        descriptors_max: int | None = None,
        stop_timeout_s: float = 20,
    ) -> None:
        self.directory = directory
        self.stop_timeout_s = stop_timeout_s
        self.descriptors_max = descriptors_max
        self.port = port
        self.settings = dict(settings or {})
        self.bootstrap = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running node, not of its supervisor."""
        (node,) = control.status(ClusterPlace(self.directory))["nodes"]
        return int(node["pid"])

    def start(self) -> KraftboxNode:
        """Start and wait until it serves. Raises: NodeDidNotStart with its output."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "kraftbox", "up", "--dir", str(self.directory)]
        command += ["--port", str(self.port)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        with open(self.directory / "process.err", "ab") as errors:
            self._process = subprocess.Popen(
                self._limited(command),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("bootstrap.servers="):
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            complaint = (self.directory / "process.err").read_text()[-4000:]
            raise NodeDidNotStart(f"first line {line!r}\n{complaint}")
        self.bootstrap = line.strip().partition("=")[2]
        self.port = int(self.bootstrap.rpartition(":")[2])
        return self

    def _limited(self, command: list[str]) -> list[str]:
        if self.descriptors_max is None:
            return command
        return ["sh", "-c", f'ulimit -n {self.descriptors_max}; exec "$@"', "sh", *command]

    def kill(self) -> None:
        """Kill the node with SIGKILL, without any clean-up. Its supervisor ends with it."""
        if self._process is not None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap(self._process)

    def stop(self) -> int:
        """Send SIGTERM and wait for a clean end. Returns: the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        return self._reap(self._process)

    def _reap(self, process: subprocess.Popen[str]) -> int:
        """Wait for the supervisor's end. Returns: its exit code."""
        self._process = None
        try:
            code = process.wait(timeout=self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
        return code
