"""A Kafka cluster in separate processes, with the operations that tests need."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kraftbox.launcher.handed_settings import handed
from kraftbox.launcher.interpreter import own_command
from kraftbox.testing.channel import ClusterError, Helper, ask_supervisor
from kraftbox.testing.healing import Repair, repairs
from kraftbox.testing.links import KafkaLink
from kraftbox.testing.records import Headers, Record, Value, as_rows, from_rows, sized
from kraftbox.testing.running import WAIT_S, RunningNodes, wait_for
from kraftbox.testing.shape import text_of

__all__ = ["ClusterError", "KafkaCluster", "KafkaLink", "KafkaNode", "Partition", "Record"]
__tracebackhide__ = True

ACT_S = 45.0
END_S = 45.0
UNKNOWN_S = 0.5
"""How long a topic may be unknown to a broker after another client has created it."""
SETTLE_S = 10.0
"""How long healed brokers have to rejoin the cluster and the ISRs."""
GROUP_BYTES = 512 << 10
"""Maximum bytes of records in one request, which must fit into a frame."""
PAGE_WAIT_S = 1.0
LATE_MAX = 3
"""How many partitions an error names."""
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
        self._cluster.touched.add(self.id)
        request = {"do": "node", "action": action, "id": self.id}
        ask_supervisor(self._cluster.directory, request, ACT_S)


class KafkaCluster:
    """A running cluster.

    Create it with `start`, or `attach` to one that another process manages.
    """

    def __init__(
        self,
        directory: Path,
        process: subprocess.Popen[str] | None,
        *,
        shared: bool = False,
        temporary: bool = False,
    ) -> None:
        self.directory = directory
        self.touched: set[int] = set()
        """The IDs of the nodes whose state this object has changed."""
        self.is_open = True
        self._shared = shared
        self._temporary = temporary
        self._turn = 0
        self._process = process
        self._helper = Helper()
        self.running = RunningNodes(directory, self._helper)
        """The nodes and requests to them, for the pytest plugin."""
        self._numbers = itertools.count()
        self.is_linked = False
        """True once `link` may have changed a link that `heal` has not healed."""
        found = self.supervised()
        self.cluster_id: str = found["clusterId"]
        self.nodes = {facts["id"]: KafkaNode(self, facts) for facts in found["nodes"]}

    def __repr__(self) -> str:
        state = "" if self.is_open else "closed, "
        return f"<KafkaCluster {state}{self.bootstrap_servers}, directory {self.directory}>"

    @classmethod
    def start(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        brokers: int = 1,
        controllers: int | None = None,
        combined: bool | None = None,
        racks: Sequence[str] = (),
        configs: Mapping[str, object] | None = None,
        isolate: bool = False,
    ) -> Self:
        """Start a cluster and return when all nodes are ready; an existing directory is resumed.

        Args:
            directory: for data and logs; None is a temporary one, which `close` removes.
            brokers: the number of brokers; a single one is its own controller.
            controllers: the number of controllers; default: 3 for several brokers.
            combined: whether nodes have both roles, as far as both numbers go.
            racks: assigned to the brokers in turn.
            configs: keys of server.properties, for every node.
            isolate: give the nodes a network of their own, for `link` (Linux, root).

        Raises ClusterError.
        """
        if combined is None:
            combined = brokers == 1 and controllers is None
        if controllers is None:
            controllers = 1 if combined else 3
        made = directory is None
        place = Path(directory or tempfile.mkdtemp(prefix="kafka-")).absolute()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = own_command(
            "up",
            *("--dir", str(place), "--port", "0", "--lifeline"),
            *("--brokers", str(brokers), "--controllers", str(controllers)),
            *(("--combined",) if combined else ()),
            *(("--racks", ",".join(racks)) if racks else ()),
            *(("--isolate",) if isolate else ()),
        )
        process = _supervisor(command, place, configs or {})
        return cls(place, process, temporary=made)

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
        """Stop the cluster and delete its data, unless it was attached.

        The logs stay, but not in a temporary directory.
        """
        self.is_open = False
        self._helper.close()
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ClusterError):
            for facts in self.supervised()["nodes"]:
                if facts.get("cutOff"):
                    self.nodes[facts["id"]].reconnect()
        # The supervisor stops the cluster at the end of its input.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_S)
        if process.poll() is None:
            process.kill()
            process.communicate()
        if keep_data:
            return
        for node in self.nodes.values():
            shutil.rmtree(node.log_path.parent / "data", ignore_errors=True)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    # --- healing ----------------------------------------------------------------------------------

    def heal(self, *, but: Collection[int] = (), timeout_s: float = WAIT_S) -> list[Repair]:
        """Start, resume and reconnect every broken node, and make all links whole.

        Returns what was repaired, after the brokers have rejoined. Nodes with an ID in `but` stay
        as they are. In a cluster that others share, only nodes that this object has acted on are
        repaired. Raises ClusterError if a node does not start.
        """
        only = self.touched if self._shared else self.nodes.keys()
        found = repairs(self.running.states(), set(only) - set(but))

        def carry_out(repair: Repair) -> None:
            for action in repair.actions:
                getattr(self.nodes[repair.node_id], action)()

        # All at once: no broker becomes ready before a majority of the controllers runs.
        if found:
            with ThreadPoolExecutor(len(found)) as pool:
                list(pool.map(carry_out, found))
        self.touched.clear()
        if self.is_linked:
            self._helper.ask({"do": "heal_links", "dir": str(self.directory)})
            self.is_linked = False
        if not found:
            return found
        brokers = {node.id for node in self.brokers}

        def rejoined() -> bool | None:
            return self.running.ready() & brokers <= set(self.running.ask("brokers")) or None

        with contextlib.suppress(ClusterError):
            wait_for(rejoined, "all brokers registered", min(timeout_s, SETTLE_S))
            self.wait_until_in_sync(min(timeout_s, SETTLE_S))
        return found

    def link(self, a: int | str, b: int | str) -> KafkaLink:
        """Return the link between two nodes, by ID; "clients" is this machine.

        Needs a cluster that was started with `isolate=True`.
        """

        def changed() -> None:
            self.is_linked = True

        return KafkaLink(self._helper, self.directory, a, b, changed)

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
        """Return a node by ID: brokers are 1, 2, ..., separate controllers 101, 102, ...

        Raises ClusterError for an unknown ID.
        """
        if node_id not in self.nodes:
            known = ", ".join(map(str, self.nodes))
            raise ClusterError(f"unknown node {node_id}; known: {known}")
        return self.nodes[node_id]

    def supervised(self) -> dict[str, Any]:
        """Return the supervisor's view of the processes, as in `kraftbox status --json`."""
        return self.running.supervised()

    def controller(self, *, timeout_s: float = WAIT_S) -> KafkaNode:
        """Wait for an active controller, the leader of the metadata quorum, and return it."""

        def active() -> KafkaNode | None:
            quorum = self._helper.ask({"do": "status", "dir": str(self.directory)})["quorum"]
            return None if quorum is None else self.nodes.get(quorum["leader"])

        return wait_for(active, "an active controller", timeout_s)

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
        self.running.ask(
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
        self.running.ask("delete_topic", name=name)

    def topics(self, *, internal: bool = False) -> dict[str, list[Partition]]:
        """Return every topic with its partitions; internal topics only if `internal`."""
        found = self.running.ask("topics", internal=internal)
        return {name: [Partition(**entry) for entry in listed] for name, listed in found.items()}

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic. Raises ClusterError for a topic that does not exist."""
        found = self.topics(internal=True).get(topic)
        if found is None:
            raise ClusterError(f"unknown topic {topic}")
        return found

    def leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> KafkaNode:
        """Wait for a leader of a partition, other than node `other_than` if given; return it.

        Raises ClusterError, at once for an unknown topic or partition.
        """
        _check_partition(self, topic, partition)

        def led() -> KafkaNode | None:
            found = self.partitions(topic)[partition].leader
            return None if found in (-1, other_than) else self.nodes.get(found)

        other = "" if other_than is None else f" other than node {other_than}"
        return wait_for(led, f"a leader of {topic}-{partition}{other}", timeout_s)

    def wait_until_in_sync(self, timeout_s: float = WAIT_S) -> None:
        """Wait until every partition has a leader and all of its replicas are in sync."""
        late: list[str] = []

        def whole() -> bool | None:
            late[:] = [
                f"{topic}-{one.index} (leader {one.leader}, in sync {list(one.isr)} of "
                f"{list(one.replicas)})"
                for topic, listed in self.topics(internal=True).items()
                for one in listed
                if one.leader < 0 or len(one.isr) < len(one.replicas)
            ]
            return not late or None

        try:
            wait_for(whole, "all replicas in sync", timeout_s)
        except ClusterError as error:
            raise ClusterError("; ".join([str(error), *late[:LATE_MAX]])) from None

    # --- administration ---------------------------------------------------------------------------

    def alter_config(
        self,
        values: Mapping[str, object],
        *,
        topic: str | None = None,
        broker: int | None = None,
        group: str | None = None,
    ) -> None:
        """Set configuration keys; None resets one to its default.

        Name one of `topic`, `broker` and `group`; without any, the keys are for all brokers. Raises
        ClusterError.
        """
        texts = {key: None if value is None else text_of(value) for key, value in values.items()}
        named = None if broker is None else str(broker)
        self.running.ask("alter_config", values=texts, topic=topic, broker=named, group=group)

    def group_lag(self, group: str) -> dict[tuple[str, int], int | None]:
        """Return how many records the group has still to read, by topic and partition.

        The lag is None for a partition without a leader. Raises ClusterError for an unknown group.
        """
        rows = self.running.ask("group_lag", group=group)
        return {(topic, index): lag for topic, index, lag in rows}

    def elect(
        self,
        topic: str,
        partition: int = 0,
        *,
        kind: str = "preferred",
        leader: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> KafkaNode:
        """Elect a leader of a partition and return it.

        `kind` is a type of `kraftbox elect`; `leader` is the broker of a designation. Raises
        ClusterError if the election failed.
        """
        _check_partition(self, topic, partition)
        question = {"topic": topic, "partition": partition, "kind": kind, "leader": leader}
        self.running.ask("elect", **question, timeout_ms=timeout_s * 1000.0)
        return self.leader(topic, partition, timeout_s=timeout_s)

    def explain(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Return why a partition has its leader or none, as `kraftbox elect --explain --json`."""
        _check_partition(self, topic, partition)
        found: dict[str, Any] = self.running.ask("explain", topic=topic, partition=partition)
        return found

    # --- records ------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        *values: Value,
        key: bytes | str | None = None,
        headers: Headers | Mapping[str, bytes | str | None] = (),
        partition: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> list[Record]:
        """Write records in order and exactly once; return once all in-sync replicas have them.

        A str is written as UTF-8, a dict or a list as JSON, None is a tombstone. `key`, `headers`
        and `partition` are for records without their own; see `Record` for the rest. Only the
        partitions of the records need a leader. The returned records have their partition, offset
        and timestamp. Raises ClusterError, also after `timeout_s`, and TypeError.
        """
        rows = as_rows(values, key=key, headers=headers, partition=partition)
        deadline = time.monotonic() + timeout_s
        written: list[Record] = []
        for group in sized(rows, GROUP_BYTES):
            left_ms = max(deadline - time.monotonic(), 0.0) * 1000.0
            answer = self.running.ask(
                "produce", topic=topic, records=group, turn=self._turn, timeout_ms=left_ms
            )
            self._turn += len(group)
            written += from_rows(answer)
        return written

    def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        partition: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> list[Record]:
        """Read a topic, or one partition of it, from its beginning, without a group.

        With `count`, wait for that many records; without, read all current records, for which each
        partition needs a leader. The records of each partition are in order. Raises ClusterError if
        there are too few within `timeout_s`, with the partitions that have no leader; ValueError
        for a negative count.
        """
        if count is not None and count < 0:
            raise ValueError(f"count={count}: must be at least 0")
        deadline = time.monotonic() + timeout_s
        begin = self.running.ask(
            "begin_reading",
            topic=topic,
            partition=partition,
            to_end=count is None,
            timeout_ms=timeout_s * 1000.0,
        )
        positions, ends = begin["positions"], dict(begin["ends"])
        leaderless = ", ".join(f"{topic}-{index}" for index in begin["leaderless"])
        found: list[Record] = []
        while len(found) < count if count is not None else _is_before(positions, ends):
            left_s = deadline - time.monotonic()
            if left_s < 0:
                wanted = "all" if count is None else count
                rest = f"; no leader: {leaderless}" if leaderless else ""
                raise ClusterError(
                    f"{topic}: received {len(found)} of {wanted} records within "
                    f"{timeout_s:g} s{rest}"
                )
            wait_ms = min(left_s, PAGE_WAIT_S) * 1000.0
            page = self.running.ask("consume", topic=topic, positions=positions, wait_ms=wait_ms)
            positions = page["positions"]
            found += from_rows(page["records"])
        if count is None and leaderless:
            raise ClusterError(
                f"{topic}: no leader within {timeout_s:g} s: {leaderless}; received the "
                f"{len(found)} records of the other partitions"
            )
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
        self.running.ask("reset")

    # --- parts --------------------------------------------------------------------------------

    def logs(self) -> Iterator[tuple[KafkaNode, Path]]:
        """Yield every node with its log file."""
        for node in self.nodes.values():
            yield node, node.log_path


def _check_partition(cluster: KafkaCluster, topic: str, partition: int) -> None:
    """Raise ClusterError unless the partition exists."""

    def listed() -> int | None:
        found = cluster.topics(internal=True).get(topic)
        return None if found is None else len(found)

    count = wait_for(listed, f"unknown topic {topic}", UNKNOWN_S, told=False)
    if not 0 <= partition < count:
        raise ClusterError(no_partition(topic, partition, count))


def no_partition(topic: str, partition: int, count: int) -> str:
    """Return the error of a partition that a topic of `count` partitions does not have."""
    allowed = "partition 0" if count == 1 else f"partitions 0 to {count - 1}"
    return f"{topic} has no partition {partition}: it has {allowed}"


def _supervisor(
    command: Sequence[str], place: Path, configs: Mapping[str, object]
) -> subprocess.Popen[str]:
    """Start the supervisor and return when the nodes are ready. Raises ClusterError."""
    settings = {key: text_of(value) for key, value in configs.items()}
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
    return process


def _is_before(positions: Sequence[Sequence[int]], ends: Mapping[int, int]) -> bool:
    """Return whether a partition has unread records below its recorded end."""
    return any(offset < ends[index] for index, offset in positions)
