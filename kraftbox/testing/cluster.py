"""A Kafka cluster in separate processes, with the operations that tests need."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from kraftbox.launcher.handed_settings import handed
from kraftbox.launcher.interpreter import own_command
from kraftbox.testing.channel import ClusterError, Helper, ask_supervisor
from kraftbox.testing.records import Record, as_rows, from_rows, sized
from kraftbox.testing.shape import text_of

__all__ = ["ClusterError", "KafkaCluster", "KafkaNode", "Partition", "Record"]

T = TypeVar("T")

WAIT_S = 30.0
ACT_S = 45.0
END_S = 45.0
POLL_S = 0.02
GROUP_BYTES = 512 << 10
"""Maximum bytes of records in one request, which must fit into a frame."""
PAGE_WAIT_S = 1.0
NAME_LENGTH_MAX = 200
"""Kafka's limit is 249; a suffix that makes a name unique is added."""
FIRST_LINE = "bootstrap.servers="


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition in the cluster's metadata; `leader` is -1 without a leader."""

    index: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


class KafkaNode:
    """One node. Its methods return when the operation is done, or raise ClusterError."""

    def __init__(self, cluster: KafkaCluster, facts: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self.id: int = facts["id"]
        self.roles: frozenset[str] = frozenset(facts["roles"].split(","))
        self.rack: str | None = facts["rack"]
        self.listeners: str = facts["listeners"]
        self.log_path = Path(facts["log"])

    def __repr__(self) -> str:
        return f"<KafkaNode {self.id} {','.join(sorted(self.roles))}>"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def address(self) -> str:
        """The node's `host:port` for clients.

        Raises ClusterError on a node that is only a controller.
        """
        for entry in self.listeners.split(","):
            name, _, address = entry.partition("://")
            if name != "CONTROLLER":
                return address
        raise ClusterError(f"node {self.id} is not a broker: clients cannot connect to it")

    @property
    def facts(self) -> Mapping[str, Any]:
        """The supervisor's current view of the node: state, ready, pid, exitCode, http, ..."""
        return next(node for node in self._cluster.supervised()["nodes"] if node["id"] == self.id)

    @property
    def state(self) -> str:
        """One of starting, running, paused, stopping, stopped, killed or failed."""
        return str(self.facts["state"])

    @property
    def is_cut_off(self) -> bool:
        return bool(self.facts.get("cutOff"))

    def kill(self) -> None:
        """End the node with SIGKILL, without a clean shutdown."""
        self._act("kill")

    def stop(self) -> None:
        """Stop the node cleanly: other brokers take over its leaders, and all data is flushed."""
        self._act("stop")

    def start(self) -> None:
        """Start the node at its old address after `kill` or `stop`; return when it is ready."""
        self._act("start")

    def restart(self) -> None:
        """Stop the node, unless it is down, and start it."""
        if self.state not in ("stopped", "killed", "failed"):
            self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the node with SIGSTOP: its connections stay open, and it answers nothing."""
        self._act("pause")

    def resume(self) -> None:
        """Resume the paused node with SIGCONT."""
        self._act("resume")

    def cut_off(self) -> None:
        """Cut the node off from nodes and clients: it keeps running, but no packet reaches it.

        Needs Linux.
        """
        self._act("cut-off")

    def reconnect(self) -> None:
        """Undo `cut_off`; connections that were cut are reset."""
        self._act("reconnect")

    def log(self) -> str:
        """Return the content of the node's log."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def _act(self, action: str) -> None:
        request = {"do": "node", "action": action, "id": self.id}
        ask_supervisor(self._cluster.directory, request, ACT_S)


class KafkaCluster:
    """A running cluster.

    Create it with `start`, or `attach` to one that another process manages.
    """

    def __init__(
        self, directory: Path, process: subprocess.Popen[str] | None, *, shared: bool = False
    ) -> None:
        self.directory = directory
        self._shared = shared
        self._turn = 0
        self._process = process
        self._helper = Helper()
        self._numbers = itertools.count()
        found = self.supervised()
        self.cluster_id: str = found["clusterId"]
        self.nodes = {facts["id"]: KafkaNode(self, facts) for facts in found["nodes"]}

    @classmethod
    def start(
        cls,
        directory: str | os.PathLike[str],
        *,
        brokers: int = 3,
        controllers: int = 3,
        combined: bool = False,
        racks: Sequence[str] = (),
        configs: Mapping[str, object] | None = None,
    ) -> Self:
        """Start a cluster and return when all nodes are ready; an existing directory is resumed.

        `racks` are assigned to brokers in turn; `configs` are keys of server.properties for every
        node. With `combined`, nodes have both roles as far as both numbers go. Raises ClusterError.
        """
        place = Path(directory).absolute()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = own_command(
            "up",
            *("--dir", str(place), "--port", "0", "--lifeline"),
            *("--brokers", str(brokers), "--controllers", str(controllers)),
            *(("--combined",) if combined else ()),
            *(("--racks", ",".join(racks)) if racks else ()),
        )
        settings = {key: text_of(value) for key, value in (configs or {}).items()}
        complaint = place / "up.log"
        with open(complaint, "wb") as errors:
            process = subprocess.Popen(
                command,
                env=handed(settings, os.environ),
                # If this process dies, its end of the pipe closes and the cluster stops.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        if not process.stdout.readline().startswith(FIRST_LINE):
            process.communicate()
            raise ClusterError(
                f"cannot start the cluster: {complaint.read_text(errors='replace').strip()}"
            )
        return cls(place, process)

    @classmethod
    def attach(cls, directory: str | os.PathLike[str], *, shared: bool = False) -> Self:
        """Use a cluster that another process (or `kraftbox up --detach`) has started.

        A cluster that is `shared` with others refuses `reset`.
        """
        return cls(Path(directory).absolute(), None, shared=shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, keep_data: bool = False) -> None:
        """Stop the cluster and delete its data, unless it was attached; the logs stay."""
        self._helper.close()
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ClusterError):
            self._resume_all()
        # The supervisor stops the cluster at the end of its input.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_S)
        if process.poll() is None:
            process.kill()
            process.communicate()
        if not keep_data:
            for node in self.nodes.values():
                shutil.rmtree(node.log_path.parent / "data", ignore_errors=True)

    def _resume_all(self) -> None:
        for facts in self.supervised()["nodes"]:
            if facts.get("cutOff"):
                self.nodes[facts["id"]].reconnect()

    # --- nodes ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The `host:port` of every broker, for a client's `bootstrap.servers`."""
        return ",".join(node.address for node in self.brokers)

    @property
    def brokers(self) -> list[KafkaNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def controllers(self) -> list[KafkaNode]:
        return [node for node in self.nodes.values() if node.is_controller]

    def node(self, node_id: int) -> KafkaNode:
        """Return a node by ID: brokers are 1, 2, ..., separate controllers 101, 102, ..."""
        return self.nodes[node_id]

    def supervised(self) -> dict[str, Any]:
        """Return the supervisor's view of the processes, as in `kraftbox status --json`."""
        return ask_supervisor(self.directory, {"do": "status"}, WAIT_S)

    def controller(self) -> KafkaNode:
        """Return the active controller: the leader of the metadata quorum."""

        def active() -> KafkaNode | None:
            quorum = self._helper.ask({"do": "status", "dir": str(self.directory)})["quorum"]
            return None if quorum is None else self.nodes.get(quorum["leader"])

        return self._wait(active, "an active controller")

    # --- topics -------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic and wait for its leaders; return its name, a generated one for None."""
        chosen = name or self.new_name("topic")
        self._ask(
            "create_topic",
            name=chosen,
            partitions=partitions,
            replication_factor=replication_factor,
            configs={key: text_of(value) for key, value in (configs or {}).items()},
        )
        return chosen

    def new_name(self, name: str) -> str:
        """Return a unique, valid name of a topic or group that begins with `name`."""
        legal = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:NAME_LENGTH_MAX]
        return f"{legal}-{os.getpid()}-{next(self._numbers)}"

    def delete_topic(self, name: str) -> None:
        self._ask("delete_topic", name=name)

    def topics(self, *, internal: bool = False) -> dict[str, list[Partition]]:
        """Return every topic with its partitions; internal topics only if `internal`."""
        found = self._ask("topics", internal=internal)
        return {name: [Partition(**entry) for entry in listed] for name, listed in found.items()}

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic. Raises ClusterError for a topic that does not exist."""
        found = self.topics(internal=True).get(topic)
        if found is None:
            raise ClusterError(f"unknown topic {topic}")
        return found

    def leader(self, topic: str, partition: int = 0, *, other_than: int | None = None) -> KafkaNode:
        """Wait for a leader of a partition, other than node `other_than` if given, and return
        it.
        """

        def led() -> KafkaNode | None:
            found = self.partitions(topic)[partition].leader
            return None if found in (-1, other_than) else self.nodes.get(found)

        return self._wait(led, f"a leader of {topic}-{partition}")

    def wait_until_in_sync(self, timeout_s: float = WAIT_S) -> None:
        """Wait until every partition has a leader and all of its replicas are in sync."""

        def whole() -> bool | None:
            in_sync = all(
                partition.leader >= 0 and len(partition.isr) == len(partition.replicas)
                for listed in self.topics(internal=True).values()
                for partition in listed
            )
            return in_sync or None

        self._wait(whole, "all replicas in sync", timeout_s)

    # --- records ------------------------------------------------------------------------------

    def produce(
        self, topic: str, *values: bytes | str | Record | None, partition: int | None = None
    ) -> list[Record]:
        """Write records in order and exactly once; return once all in-sync replicas have them.

        A str is written as UTF-8, None is a tombstone. The returned records have their partition,
        offset and timestamp. `partition` is for records without one; see `Record` for the rest.
        Raises ClusterError, TypeError.
        """
        rows = as_rows(values)
        for row in rows:
            row[3] = partition if row[3] is None else row[3]
        written: list[Record] = []
        for group in sized(rows, GROUP_BYTES):
            answer = self._ask("produce", topic=topic, records=group, turn=self._turn)
            self._turn += len(group)
            written += from_rows(answer)
        return written

    def consume(
        self, topic: str, count: int | None = None, *, timeout_s: float = WAIT_S
    ) -> list[Record]:
        """Read a topic from its beginning, without a group.

        With `count`, wait for that many records; without, read all current records. The records of
        each partition are in order. Raises ClusterError if there are too few within `timeout_s`,
        ValueError for a negative count.
        """
        if count is not None and count < 0:
            raise ValueError(f"count={count}: must be at least 0")
        ends = self._ask("ends", topic=topic)
        positions = [[index, first] for index, first, _ in ends]
        found: list[Record] = []
        deadline = time.monotonic() + timeout_s
        while len(found) < count if count is not None else _is_before(positions, ends):
            left_s = deadline - time.monotonic()
            if left_s < 0:
                wanted = "all" if count is None else count
                raise ClusterError(
                    f"{topic}: received {len(found)} of {wanted} records within {timeout_s:g} s"
                )
            wait_ms = min(left_s, PAGE_WAIT_S) * 1000.0
            page = self._ask("consume", topic=topic, positions=positions, wait_ms=wait_ms)
            positions = page["positions"]
            found += from_rows(page["records"])
        return found if count is None else found[:count]

    def reset(self) -> None:
        """Delete all topics but internal ones, and all groups with their members.

        Use it between two tests; it takes some tens of milliseconds. Broker settings stay, and
        killed nodes stay down. Raises ClusterError, also for a shared cluster.
        """
        if self._shared:
            raise ClusterError(
                "other workers use this cluster (--kafka-shared): use the fixture "
                "kafka_topic, or new topic names"
            )
        self._ask("reset")

    # --- parts --------------------------------------------------------------------------------

    def logs(self) -> Iterator[tuple[KafkaNode, Path]]:
        """Yield every node with its log file."""
        for node in self.nodes.values():
            yield node, node.log_path

    def _ask(self, what: str, **question: object) -> Any:
        # Only running nodes: a request to a paused one would block.
        running = [
            self.nodes[facts["id"]]
            for facts in self.supervised()["nodes"]
            if facts["state"] == "running" and not facts.get("cutOff")
        ]
        brokers = [node for node in running if node.is_broker]
        if not brokers:
            raise ClusterError("no broker is running")
        where = {
            "bootstrap": ",".join(node.address for node in brokers),
            "nodes": [node.id for node in brokers],
        }
        return self._helper.ask({"do": what, **where, **question})

    def _wait(self, holds: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
        """Poll until `holds` returns a value; errors before `timeout_s` are ignored."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = holds()
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
                found = None
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not within {timeout_s:g} s")
            time.sleep(POLL_S)


def _is_before(positions: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]) -> bool:
    """Return whether a partition has unread records below its recorded end."""
    last = {index: end for index, _, end in ends}
    return any(offset < last[index] for index, offset in positions)
