"""Apache Kafka's nodes and command-line classes in processes of their own, from its jars."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testkit.kafka.jars import ORACLE, kafka_libs
from testkit.processes.nodes import READY_TIMEOUT_S, NodeDidNotStart


class ApacheKafkaNode:
    """One combined Apache Kafka node from its jars: the oracle, and the competitor in
    benchmarks."""

    ready_timeout_s: float = READY_TIMEOUT_S

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        heap: str = "512m",
        jvm: Sequence[str] = (),
        version: str = ORACLE,
    ) -> None:
        """`jvm` are further options of the virtual machine; `version` is the release of Kafka."""
        self.version = version
        self.directory = directory
        self.settings = dict(settings)
        self.heap = heap
        self.jvm = tuple(jvm)
        self.config = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self._process is not None
        return self._process.pid

    @property
    def log_text(self) -> str:
        """The whole log of the node's present process."""
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
        """Run kafka-storage format. Raises: NodeDidNotStart if it fails."""
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
        """Start and wait for the ready line in the log. Raises: NodeDidNotStart without it
        in time."""
        self.begin()
        return self.wait_until_ready(ready_line)

    def begin(self) -> None:
        """Start the process without waiting, so that several nodes can start together."""
        with open(self.directory / "kafka.log", "wb") as output:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(self.config)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self, ready_line: str = "Kafka Server started") -> ApacheKafkaNode:
        """Wait for the ready line in the log.

        Raises: NodeDidNotStart if the process ends or the line does not come in time.
        """
        deadline = time.monotonic() + self.ready_timeout_s
        while ready_line not in self.log_text:
            if not self.is_running or time.monotonic() > deadline:
                self.stop()
                raise NodeDidNotStart(self.log_text[-4000:])
            time.sleep(0.02)
        return self

    @property
    def is_running(self) -> bool:
        """True if the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the process with SIGKILL and reap it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL after 30 s."""
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
        return ["java", *options, "-cp", kafka_class_path(version=self.version)]

    def tool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command-line classes to its end."""
        return run_kafka_tool(*arguments, version=self.version)


def kafka_class_path(*more: Path, version: str = ORACLE) -> str:
    """Return the class path of a release's jars. Raises: RuntimeError without the jars."""
    libs = kafka_libs(version)
    if libs is None:
        raise RuntimeError("Apache Kafka's jars need a JRE and Maven")
    return os.pathsep.join([f"{libs}/*", *map(str, more)])


def run_kafka_tool(
    *arguments: str,
    timeout_s: float = 120,
    stdin: str | None = None,
    version: str = ORACLE,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line classes: `run_kafka_tool("kafka.tools.StorageTool", ...)`."""
    command: Sequence[str] = [
        "java",
        "-Xmx256m",
        "-cp",
        kafka_class_path(version=version),
        *arguments,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, input=stdin, check=False
    )
