"""The nodes that a benchmark compares: one of Kraftbox and one of Apache Kafka, each a process."""

from __future__ import annotations

import os
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.processes.nodes import KraftboxNode
from testkit.processes.ports import free_port

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
DELETE_SOON = {"log.segment.delete.delay.ms": "100"}
"""With the usual minute, a benchmark's data would fill the disk."""


def cpu_times(pid: int) -> tuple[float, float]:
    """Return the user seconds and system seconds that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    per_second = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / per_second, int(fields[12]) / per_second


def cpu_seconds(pid: int) -> float:
    """Return the user and system seconds that the process has used."""
    return sum(cpu_times(pid))


def waited_s(pid: int) -> float:
    """Return the seconds that the process's main thread was runnable, but waited for a
    processor.
    """
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def resident_mb(pid: int) -> float:
    """Return the resident set in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def scrape(address: str) -> str:
    """Return the metrics of the node at HOST:PORT."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as reply:
        text: str = reply.read().decode()
        return text


def keep_bytecode(place: Path) -> None:
    """Let our processes cache their compiled modules below `place`.

    An installed package has compiled modules, too. Settings of the environment are overridden.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(place / "bytecode")


class Loaded(Protocol):
    """The node or cluster interface that a load needs."""

    @property
    def bootstrap(self) -> str: ...

    def broker_pids(self) -> list[int]:
        """Return the process IDs of its brokers."""
        ...

    def cpu_s(self) -> float:
        """Return the CPU seconds that its brokers have used."""
        ...

    def folders(self, topic: str) -> list[Path]:
        """Return the folders of a topic on the disk."""
        ...


class _One(ABC):
    """The shared part of both nodes."""

    data: Path

    @property
    @abstractmethod
    def pid(self) -> int: ...

    def broker_pids(self) -> list[int]:
        return [self.pid]

    def cpu_s(self) -> float:
        return cpu_seconds(self.pid)

    def folders(self, topic: str) -> list[Path]:
        return list(self.data.glob(f"{topic}-*"))


class Kraftbox(_One):
    """A Kraftbox node under measurement."""

    name = "kraftbox"

    def __init__(self, place: Path, settings: Mapping[str, str] | None = None) -> None:
        self.node = KraftboxNode(place, settings={**DELETE_SOON, **(settings or {})})
        self.data = place / "data"

    def start(self) -> float:
        """Start the node; return the seconds from the command to ready."""
        begin = time.monotonic()
        self.node.start()
        return time.monotonic() - begin

    def stop(self) -> None:
        self.node.stop()

    def scrape(self) -> str:
        """Return the node's metrics as Prometheus text."""
        (node,) = control.status(ClusterPlace(self.node.directory))["nodes"]
        return scrape(node["http"])

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap

    @property
    def pid(self) -> int:
        return self.node.pid


class Kafka(_One):
    """Apache Kafka, one combined node with the settings of `kraftbox up`."""

    name = "kafka"

    def __init__(self, place: Path, settings: Mapping[str, str] | None = None) -> None:
        port = free_port()
        controller = free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        self.data = place / "data"
        self.node = ApacheKafkaNode(
            place,
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(self.data),
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "share.coordinator.state.topic.replication.factor": "1",
                "share.coordinator.state.topic.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
                **DELETE_SOON,
                **(settings or {}),
            },
            heap="1g",
        )
        self.node.format(CLUSTER_ID)

    def start(self) -> float:
        """Start the node; return the seconds from the command to ready."""
        begin = time.monotonic()
        self.node.start()
        return time.monotonic() - begin

    def stop(self) -> None:
        self.node.stop()

    @property
    def pid(self) -> int:
        return self.node.pid


Node = Kraftbox | Kafka


def make_cold(node: Node, topic: str) -> None:
    """Drop a topic's data from the page cache, so that reads need the disk."""
    for path in node.data.glob(f"{topic}-*/*.log"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
