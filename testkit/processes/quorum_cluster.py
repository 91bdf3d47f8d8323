"""Controllers and brokers in processes of their own, with links between them that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kraftbox.cli.storage import format_storage
from protocol.ids import random_uuid, uuid_to_text
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.transport.client import Connection
from testkit.processes.ports import free_port
from testkit.processes.waiting import until
from testkit.processes.wire_proxy import WireProxies
from testkit.processes.wire_record import Watcher

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
HOST = "127.0.0.1"
ELECTION_MS = 500
FETCH_MS = 1000
TOLD_LINES = 20


class NodeProcess:
    """One node from a properties file. `port` is its listener, `proxy` the port for other nodes."""

    def __init__(self, cluster: ProcessCluster, node_id: int, *, is_controller: bool) -> None:
        self.cluster = cluster
        self.id = node_id
        self.is_controller = is_controller
        self.directory = cluster.directory / f"node-{node_id}"
        self.port = free_port()
        self.proxy = 0
        if is_controller:
            self.proxy = cluster.links.add(node_id, (HOST, self.port), cluster.watch)
        self.directory_id = random_uuid(random.Random(node_id))
        self.process: subprocess.Popen[bytes] | None = None
        self.settings: dict[str, str] = {}
        """Settings of this node alone."""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def metadata_dir(self) -> Path:
        return self.data / "__cluster_metadata-0"

    @property
    def config(self) -> Path:
        return self.directory / "server.properties"

    def properties(self) -> dict[str, str]:
        role, name = ("controller", "CONTROLLER") if self.is_controller else ("broker", "PLAINTEXT")
        advertised = self.proxy if self.is_controller else self.port
        return {
            "process.roles": role,
            "node.id": str(self.id),
            "listeners": f"{name}://{HOST}:{self.port}",
            "advertised.listeners": f"{name}://{HOST}:{advertised}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data),
            "controller.quorum.election.timeout.ms": str(ELECTION_MS),
            "controller.quorum.fetch.timeout.ms": str(FETCH_MS),
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "300",
            "offsets.topic.replication.factor": "1",
            **self.cluster.quorum_properties(),
            **self.cluster.settings,
            **self.settings,
        }

    def write_config(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{k}={v}\n" for k, v in self.properties().items()))

    def format(
        self, *, initial_controllers: str | None = None, no_initial_controllers: bool = False
    ) -> None:
        """Format the node as `kraftbox storage format` does, without an interpreter of its own."""
        self.write_config()
        format_storage(
            self.config,
            CLUSTER_ID,
            initial_controllers=initial_controllers,
            no_initial_controllers=no_initial_controllers,
            asked=list(self.cluster.features),
        )

    def start(self) -> None:
        command = [sys.executable, "-m", "kraftbox", "server", str(self.config)]
        command += ["--override", "kraftbox.http.listener="]
        with open(self.directory / "node.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            return process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def tell(self) -> None:
        """Print the end of the node's log: pytest shows it below a failed test."""
        if (self.directory / "node.log").exists():
            print(f"== last log lines of node {self.id}")
            print("".join(self.log_text.splitlines(keepends=True)[-TOLD_LINES:]))

    @property
    def log_text(self) -> str:
        return (self.directory / "node.log").read_text()


class ProcessCluster:
    """Controllers 1..n and brokers n+1..n+m; use as a context manager, then `start`."""

    def __init__(
        self,
        directory: Path,
        *,
        controllers: int = 3,
        brokers: int = 2,
        dynamic: bool = False,
        settings: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        watch: Callable[[], Watcher] | None = None,
    ) -> None:
        """`features` are levels for formatting: NAME=LEVEL. `watch` is called for each connection
        to a controller (WireProxies)."""
        self.watch = watch
        self.directory = directory
        self.features = tuple(features)
        self.dynamic = dynamic
        self.settings = dict(settings or {})
        self.links = WireProxies()
        self._counts = (controllers, brokers)
        self.nodes: dict[int, NodeProcess] = {}

    def __enter__(self) -> Self:
        self.links.__enter__()
        controllers, brokers = self._counts
        for node_id in range(1, controllers + brokers + 1):
            self.nodes[node_id] = NodeProcess(self, node_id, is_controller=node_id <= controllers)
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
            if failure is not None:
                node.tell()
        self.links.__exit__()

    @property
    def controllers(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def brokers(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if not node.is_controller]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers)

    def quorum_properties(self) -> dict[str, str]:
        if self.dynamic:
            servers = ",".join(f"{HOST}:{node.proxy}" for node in self.controllers)
            return {"controller.quorum.bootstrap.servers": servers}
        voters = ",".join(f"{node.id}@{HOST}:{node.proxy}" for node in self.controllers)
        return {"controller.quorum.voters": voters}

    def initial_controllers(self) -> str:
        return ",".join(
            f"{node.id}@{HOST}:{node.proxy}:{uuid_to_text(node.directory_id)}"
            for node in self.controllers
        )

    def format(self) -> None:
        for node in self.nodes.values():
            voters = self.dynamic and node.is_controller
            node.format(initial_controllers=self.initial_controllers() if voters else None)

    def start(self) -> Self:
        """Format and start all nodes. Returns when every broker is unfenced."""
        self.format()
        for node in self.nodes.values():
            node.start()
        for broker in self.brokers:
            until("a broker that is ready", lambda b=broker: b.log_text.count("to RUNNING"))  # type: ignore[misc]
        return self

    # --- looking at the quorum ----------------------------------------------------------------

    def describe(self, node: NodeProcess) -> DescribeQuorumResponse.PartitionData | None:
        """Query one controller directly, past the proxies. Returns: None without a response."""
        with contextlib.suppress(OSError, TimeoutError):
            return asyncio.run(_describe(node.port))
        return None

    def leader(self, but: NodeProcess | None = None) -> NodeProcess | None:
        """Return the controller that reports itself as leader, in the highest epoch if
        several do."""
        best: tuple[int, NodeProcess] | None = None
        for node in self.controllers:
            if node.process is None or node is but:
                continue
            description = self.describe(node)
            if description is None or description.error_code or description.leader_id != node.id:
                continue
            if best is None or description.leader_epoch > best[0]:
                best = (description.leader_epoch, node)
        return None if best is None else best[1]

    def wait_for_leader(self, but: NodeProcess | None = None) -> NodeProcess:
        return until("a leader", lambda: self.leader(but))

    def wait_for_high_watermark(self, offset: int) -> None:
        def reached() -> bool:
            leader = self.leader()
            description = None if leader is None else self.describe(leader)
            return description is not None and description.high_watermark >= offset

        until(f"a high watermark of {offset}", reached)


async def _describe(port: int) -> DescribeQuorumResponse.PartitionData | None:
    connection = await Connection.connect(HOST, port, "test", 1000)
    try:
        topic = DescribeQuorumRequest.TopicData(
            topic_name="__cluster_metadata",
            partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
        )
        response: Any = await connection.request(DescribeQuorumRequest(topics=[topic]), 1000)
        return response.topics[0].partitions[0]  # type: ignore[no-any-return]
    finally:
        await connection.close()


@contextlib.contextmanager
def process_cluster(directory: Path, **options: Any) -> Iterator[ProcessCluster]:
    """Yield a started cluster; end it afterwards."""
    with ProcessCluster(directory, **options) as cluster:
        yield cluster.start()
