"""Real nodes in processes of their own: ours by `kraftbox up`, Apache Kafka's from its jars."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace

READY_TIMEOUT_S = 120
"""Nobody waits that long for a node that starts; a busy machine may make it ten times slower."""


class NodeDidNotStart(RuntimeError):
    """The process ended or stayed silent; the message carries what it printed."""


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
        """Process id of the running node, not of its supervisor."""
        (node,) = control.status(ClusterPlace(self.directory))["nodes"]
        return int(node["pid"])

    def start(self) -> KraftboxNode:
        """Start and wait until it answers; raises NodeDidNotStart."""
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
            told = (self.directory / "process.err").read_text()[-4000:]
            raise NodeDidNotStart(f"first line {line!r}\n{told}")
        self.bootstrap = line.strip().partition("=")[2]
        self.port = int(self.bootstrap.rpartition(":")[2])
        return self

    def _limited(self, command: list[str]) -> list[str]:
        if self.descriptors_max is None:
            return command
        return ["sh", "-c", f'ulimit -n {self.descriptors_max}; exec "$@"', "sh", *command]

    def kill(self) -> None:
        """SIGKILL: nothing in the node gets a last word. Its supervisor ends with it."""
        if self._process is not None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap(self._process)

    def stop(self) -> int:
        """SIGTERM and wait for a clean end; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        return self._reap(self._process)

    def _reap(self, process: subprocess.Popen[str]) -> int:
        """Wait for the supervisor's end."""
        self._process = None
        try:
            code = process.wait(timeout=self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
        return code


class ApacheKafkaNode:
    """One combined Apache Kafka node from its jars: the oracle, and the rival in benchmarks."""

    ready_timeout_s: float = READY_TIMEOUT_S

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        heap: str = "512m",
        jvm: Sequence[str] = (),
    ) -> None:
        """`jvm` are further options of the virtual machine."""
        self.directory = directory
        self.settings = dict(settings)
        self.heap = heap
        self.jvm = tuple(jvm)
        self.config = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running node."""
        assert self._process is not None
        return self._process.pid

    @property
    def log_text(self) -> str:
        """Everything it has logged."""
        return (self.directory / "kafka.log").read_text()

    def write_config(self) -> None:
        """Write server.properties and a quiet log4j configuration."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{k}={v}\n" for k, v in self.settings.items()))
        (self.directory / "log4j2.properties").write_text(
            "rootLogger.level=info\nrootLogger.appenderRef.c.ref=c\nappender.c.type=Console\n"
            "appender.c.name=c\nappender.c.layout.type=PatternLayout\n"
            "appender.c.layout.pattern=%d %p %m (%c)%n\n"
        )

    def format(self, cluster_id: str, *arguments: str) -> None:
        """Run kafka-storage format."""
        self.write_config()
        done = self.tool(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            cluster_id,
            "-c",
            str(self.config),
            *arguments,
        )
        if done.returncode:
            raise NodeDidNotStart(done.stdout + done.stderr)

    def start(self, ready_line: str = "Kafka Server started") -> ApacheKafkaNode:
        """Start and wait for the line that says it serves; raises NodeDidNotStart."""
        self.begin()
        return self.wait_until_ready(ready_line)

    def begin(self) -> None:
        """Start the process; several nodes may come up together."""
        with open(self.directory / "kafka.log", "wb") as output:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(self.config)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self, ready_line: str = "Kafka Server started") -> ApacheKafkaNode:
        """Wait for the line that says it serves; raises NodeDidNotStart."""
        deadline = time.monotonic() + self.ready_timeout_s
        while ready_line not in self.log_text:
            if not self.is_running or time.monotonic() > deadline:
                self.stop()
                raise NodeDidNotStart(self.log_text[-4000:])
            time.sleep(0.02)
        return self

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL and reap."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 30 s."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _java(self) -> list[str]:
        settings = self.directory / "log4j2.properties"
        options = [*self.jvm, f"-Xmx{self.heap}", f"-Dlog4j2.configurationFile={settings}"]
        return ["java", *options, "-cp", kafka_class_path()]

    def tool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command-line classes to its end."""
        return run_kafka_tool(*arguments)


def kafka_class_path(*more: Path) -> str:
    """The class path of Apache Kafka 4.3.1's jars; raises RuntimeError where they cannot be had."""
    from testkit.kafka.jars import kafka_libs

    libs = kafka_libs()
    if libs is None:
        raise RuntimeError("Apache Kafka's jars need a JRE and Maven")
    return os.pathsep.join([f"{libs}/*", *map(str, more)])


def run_kafka_tool(
    *arguments: str, timeout_s: float = 120, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line classes: `run_kafka_tool("kafka.tools.StorageTool", ...)`."""
    command: Sequence[str] = ["java", "-Xmx256m", "-cp", kafka_class_path(), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, input=stdin, check=False
    )
