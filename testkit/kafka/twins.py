"""Twins: an Apache Kafka and a Kraftbox node from one server.properties.

Both listen for clients under two names and for controllers on a third, all on ports of their own.
Their directories are formatted by Kafka's own tool for feature levels that both have.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testkit.kafka.class_archive import quick_to_start
from testkit.kafka.jars import ORACLE
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.kafka.tools import KafkaTools
from testkit.processes.nodes import NodeDidNotStart
from testkit.processes.ports import free_ports

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
NODE_ID = 1
NOT_BUILT = ("group", "transaction", "share", "streams")
COMMON_FEATURES = [part for name in NOT_BUILT for part in ("--feature", f"{name}.version=0")]
"""Options of `kafka-storage format` with which both can start."""
RUNNING = "Transitioning from RECOVERY to RUNNING"


class NodeDirectory:
    """Addresses and files of one of the two nodes."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.data = directory / "data"
        self.port, self.other_port, self.controller_port = free_ports(3)
        plain = f"PLAINTEXT://127.0.0.1:{self.port},OTHER://127.0.0.1:{self.other_port}"
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"{plain},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": plain,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def controller(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    def format(self, tools: KafkaTools, *arguments: str) -> None:
        """Write server.properties and let Kafka's tool format the directory."""
        given = ["-t", CLUSTER_ID, "-c", str(self.write_config()), "--standalone"]
        done = tools.run("kafka.tools.StorageTool", "format", *given, *arguments)
        assert done.code == 0, done.text

    def write_config(self) -> Path:
        """Write server.properties. Returns: its path."""
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return config

    def anonymous(self, text: str | None) -> str | None:
        """Return `text` without the ports and paths that distinguish the two nodes."""
        if text is None:
            return None
        for name, found in (
            ("PORT", self.port),
            ("OTHER_PORT", self.other_port),
            ("CONTROLLER_PORT", self.controller_port),
        ):
            text = text.replace(f":{found}", f":{name}")
        return text.replace(str(self.directory), "DIRECTORY")


class KraftboxServer:
    """`kraftbox server` in a process of its own, on a formatted directory."""

    def __init__(self, place: NodeDirectory) -> None:
        self.place = place
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> KraftboxServer:
        """Start and wait until it serves. Raises: NodeDidNotStart with its output."""
        self.begin()
        assert self._process is not None and self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if RUNNING in line:
                return self
        self.stop()
        raise NodeDidNotStart("".join(lines))

    def begin(self) -> None:
        """Start the process without waiting."""
        properties = self.place.directory / "server.properties"
        command = [sys.executable, "-m", "kraftbox", "server", str(properties)]
        command += ["--override", "kraftbox.http.listener=127.0.0.1:0"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def stop(self) -> int:
        """Send SIGTERM and wait for a clean end. Returns: the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process with SIGKILL, without any clean-up."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        # Further output must be read, or the process would block on it.
        process.communicate(timeout=40)
        return process.returncode


def kafka_at(place: NodeDirectory, version: str = ORACLE) -> ApacheKafkaNode:
    """Return a release of Apache Kafka for a formatted directory, with its configuration
    written."""
    node = ApacheKafkaNode(
        place.directory, place.settings, jvm=quick_to_start(version), version=version
    )
    node.write_config()
    return node
