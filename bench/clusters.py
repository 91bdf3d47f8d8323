"""The clusters that a benchmark compares: `kraftbox up`, and as many processes of Apache Kafka.

Both have separate processes for controllers and brokers: brokers 1, 2, ..., controllers 101, ...
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from bench.nodes import CLUSTER_ID, cpu_seconds, scrape
from client.addresses import Address
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.processes.ports import free_port

FIRST_CONTROLLER = 101
STOP_S_MAX = 180
RESTART_MS_MAX = 120_000


def pss_mb(pid: int) -> float:
    """Return the proportional set size in MiB: shared pages are divided among their processes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


class Cluster(ABC):
    """A cluster under measurement, with its `name` and `bootstrap`, HOST:PORT of every broker.

    `rest_cores` is above the CPU of its brokers with ten thousand idle partitions.
    """

    name: str
    bootstrap: str
    rest_cores: float

    def __init__(self, directory: Path, node_folders: str) -> None:
        self.directory = directory
        self._node_folders = node_folders

    @abstractmethod
    def start(self) -> float:
        """Start the cluster; return the seconds from the command to ready."""

    @abstractmethod
    def stop(self) -> None:
        """Stop everything, including the remains of a failed start."""

    @abstractmethod
    def node_pids(self) -> dict[int, int]:
        """Return the process ID of each running node."""

    @abstractmethod
    def addresses(self) -> dict[int, Address]:
        """Return the listener of each node."""

    @abstractmethod
    def kill(self, node_id: int) -> None:
        """Kill a node with SIGKILL."""

    @abstractmethod
    def restart(self, node_id: int) -> None:
        """Start a broker that was killed."""

    @abstractmethod
    def bounce(self, node_id: int) -> None:
        """Stop a broker cleanly and start it again."""

    @abstractmethod
    def fenced_at(self, broker_id: int) -> float:
        """Return when an active controller last began to fence this broker, according to its log.

        The time is in seconds of the wall clock. Raises ValueError if none has fenced it.
        """

    def broker_pids(self) -> list[int]:
        """Return the process IDs of the brokers."""
        return [pid for node, pid in self.node_pids().items() if is_broker(node)]

    def cpu_s(self) -> float:
        """Return the CPU seconds that the brokers have used."""
        return sum(map(cpu_seconds, self.broker_pids()))

    def folders(self, topic: str) -> list[Path]:
        """Return the folders of a topic on the brokers' disks."""
        return list(self.directory.glob(f"{self._node_folders}/data/{topic}-*"))


def is_broker(node_id: int) -> bool:
    """Return whether a node ID is a broker's in a cluster of this module."""
    return node_id < FIRST_CONTROLLER


class Kraftbox(Cluster):
    """`kraftbox up` in the foreground, as a user starts it, but with a lifeline."""

    name = "kraftbox"
    rest_cores = 0.2

    def __init__(
        self,
        directory: Path,
        controllers: int,
        brokers: int,
        *,
        combined: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, "node-*")
        self.place = ClusterPlace(directory)
        self.bootstrap = ""
        self._process: subprocess.Popen[str] | None = None
        self._nodes: dict[int, dict[str, Any]] = {}
        self._command = [sys.executable, "-m", "kraftbox", "up", "--dir", str(directory)]
        # If this process ends for any reason, its end of the pipe closes and the cluster stops.
        self._command += ["--lifeline", "--port", "0", "--controllers", str(controllers)]
        self._command += ["--brokers", str(brokers), *(["--combined"] if combined else [])]
        for key, value in (settings or {}).items():
            self._command += ["--set", f"{key}={value}"]

    def start(self) -> float:
        begin = time.monotonic()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        seconds = time.monotonic() - begin
        if not line.startswith("bootstrap.servers="):
            raise RuntimeError(f"the cluster did not start: {line!r}")
        self.bootstrap = line.strip().partition("=")[2]
        self._learn()
        return seconds

    def _learn(self) -> None:
        """Read the nodes from the supervisor, outside of timed sections, because it takes time."""
        self._nodes = {node["id"]: node for node in control.status(self.place)["nodes"]}

    def node_pids(self) -> dict[int, int]:
        return {number: node["pid"] for number, node in self._nodes.items() if node["pid"]}

    def pids(self) -> dict[str, int]:
        """Return every process of the cluster by name."""
        status = control.status(self.place)
        nodes = {f"node {node['id']}": node["pid"] for node in status["nodes"]}
        return {"supervisor": status["pid"], "fork server": status["forkServerPid"], **nodes}

    def addresses(self) -> dict[int, Address]:
        return {number: _address(node["listeners"]) for number, node in self._nodes.items()}

    def kill(self, node_id: int) -> None:
        os.kill(self._nodes[node_id].pop("pid"), signal.SIGKILL)
        self._nodes[node_id]["pid"] = None

    def restart(self, node_id: int) -> None:
        control.act(self.place, "start", node_id, RESTART_MS_MAX)
        self._learn()

    def bounce(self, node_id: int) -> None:
        control.act(self.place, "stop", node_id, RESTART_MS_MAX)
        self.restart(node_id)

    def fenced_at(self, broker_id: int) -> float:
        logs = [path for node, path in self.place.node_logs().items() if not is_broker(node)]
        line = rf"^\[(\S+ \S+)\] WARNING Fencing a broker .*\bbroker={broker_id}\b"
        return max(_times_of(line, (path.read_text() for path in logs), UTC))

    def scrape(self, node_id: int) -> str:
        """Return the node's metrics as Prometheus text."""
        return scrape(self._nodes[node_id]["http"])

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.stdout.close()


class Kafka(Cluster):
    """Apache Kafka with the settings of `kraftbox up`."""

    name = "kafka"
    rest_cores = 0.8

    def __init__(
        self,
        directory: Path,
        controllers: int,
        brokers: int,
        *,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
    ) -> None:
        super().__init__(directory, "kafka-*")
        ports = {FIRST_CONTROLLER + number: free_port() for number in range(controllers)}
        common = {
            "controller.quorum.voters": ",".join(
                f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "offsets.topic.replication.factor": str(min(3, brokers)),
            "transaction.state.log.replication.factor": str(min(3, brokers)),
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self.nodes = {
            node_id: self._node(node_id, ports.get(node_id), common, heap)
            for node_id in [*range(1, brokers + 1), *ports]
        }
        found = self.addresses().items()
        self.bootstrap = ",".join(f"{h}:{p}" for node, (h, p) in found if is_broker(node))

    def _node(
        self, node_id: int, port: int | None, common: Mapping[str, str], heap: str
    ) -> ApacheKafkaNode:
        directory = self.directory / f"kafka-{node_id}"
        name = "CONTROLLER" if port else "PLAINTEXT"
        settings = {
            "process.roles": "controller" if port else "broker",
            "node.id": str(node_id),
            "listeners": f"{name}://127.0.0.1:{port or free_port()}",
            "log.dirs": str(directory / "data"),
            **common,
        }
        node = ApacheKafkaNode(directory, settings, heap)
        node.format(CLUSTER_ID)
        return node

    def start(self) -> float:
        begin = time.monotonic()
        for node in self.nodes.values():
            node.ready_timeout_s = RESTART_MS_MAX / 1000
            node.begin()
        for node in self.nodes.values():
            node.wait_until_ready()
        return time.monotonic() - begin

    def node_pids(self) -> dict[int, int]:
        return {number: node.pid for number, node in self.nodes.items() if node.is_running}

    def addresses(self) -> dict[int, Address]:
        return {number: _address(one.settings["listeners"]) for number, one in self.nodes.items()}

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].kill()

    def restart(self, node_id: int) -> None:
        self.nodes[node_id].start()

    def bounce(self, node_id: int) -> None:
        self.nodes[node_id].stop()
        self.restart(node_id)

    def fenced_at(self, broker_id: int) -> float:
        logs = [node.log_text for number, node in self.nodes.items() if not is_broker(number)]
        return max(_times_of(rf"^(\S+ \S+) INFO .*Fencing broker {broker_id}\b", logs, None))

    def stop(self) -> None:
        # The brokers first: without a controller they cannot shut down cleanly.
        for node in self.nodes.values():
            node.stop()


def _times_of(line: str, logs: Iterable[str], zone: tzinfo | None) -> list[float]:
    """Return the times at the beginning of matching log lines; `zone` None is the machine's own."""
    found = [time for log in logs for time in re.findall(line, log, re.MULTILINE)]
    return [
        datetime.fromisoformat(time.replace(",", ".")).replace(tzinfo=zone).timestamp()
        for time in found
    ]


def _address(listeners: str) -> Address:
    host, _, port = listeners.partition("://")[2].rpartition(":")
    return host, int(port)
