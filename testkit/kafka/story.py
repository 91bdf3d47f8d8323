"""A scripted life of an Apache Kafka cluster, with the expected elections as known to the script.

Three controllers and three brokers with eligible leader replicas on. The story has one election of
each kind that the audit distinguishes. The expected elections come from two sources, neither of
which reads metadata records: the script and the logs of Kafka's controllers. The script notes after
each step the expected leader and the kind of its election. The controllers log each change of a
partition.

    python -m testkit.kafka.story OUT

records the controllers' metadata directories, the expected elections, and the output of Kafka's own
dump tool for the logs as `OUT/story.tar.xz`, and prints the elections.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from protocol.ids import uuid_to_text
from testkit.kafka.nodes import ApacheKafkaNode, kafka_class_path, run_kafka_tool
from testkit.processes import waiting
from testkit.processes.ending import end_on_sigterm
from testkit.processes.listing import listed
from testkit.processes.ports import free_port

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
CONTROLLERS = (101, 102, 103)
BROKERS = (1, 2, 3)
TOPIC, MOVED = "orders", "moved"
WAIT_S = 120.0
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"

LOGGING = (
    "rootLogger.level=info\nrootLogger.appenderRef.c.ref=c\nappender.c.type=Console\n"
    "appender.c.name=c\nappender.c.layout.type=PatternLayout\n"
    "appender.c.layout.pattern=%d %p %m (%c)%n\n"
    "logger.a.name=org.apache.kafka.controller\nlogger.a.level=debug\n"
)
_CHANGE = re.compile(
    r"(?P<unclean>UNCLEAN )?partition change for (?P<name>\S+) with topic ID \S+: "
    r"(?P<changes>.*?)\.? \(org"
)
_LEADER = re.compile(r"(?<![a-zA-Z])leader: (-?\d+) -> (-?\d+)")
_EPOCH = re.compile(r"leaderEpoch: (\d+) -> (\d+)")


class Node(ApacheKafkaNode):
    """A Kafka node whose log survives restarts and that can be killed."""

    ready_timeout_s = 180

    def __init__(self, directory: Path, settings: dict[str, str], ready: str) -> None:
        super().__init__(directory, settings, heap="256m")
        self.ready = ready

    def write_config(self) -> None:
        super().write_config()
        (self.directory / "log4j2.properties").write_text(LOGGING)

    def run(self) -> None:
        """Start, or start again; earlier log lines are kept in `history.log`."""
        old = self.directory / "kafka.log"
        if old.exists():
            with open(self.directory / "history.log", "ab") as history:
                history.write(old.read_bytes())
        self.start(self.ready)

    @property
    def whole_log(self) -> str:
        history = self.directory / "history.log"
        return (history.read_text() if history.exists() else "") + self.log_text

    def kill(self) -> None:
        """Kill the process with SIGKILL: no clean shutdown file, no deliberate flush."""
        os.kill(self.pid, signal.SIGKILL)
        self.stop()


def until(what: str, look: Callable[[], Any]) -> Any:
    return waiting.until(what, look, WAIT_S, every_s=0.2)


class Story:
    """The cluster, and the expected elections."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.truth: list[dict[str, Any]] = []
        self.nodes: dict[int, Node] = {}
        self.ports = {node: free_port() for node in (*CONTROLLERS, *BROKERS)}
        quorum = ",".join(f"localhost:{self.ports[c]}" for c in CONTROLLERS)
        common = {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": quorum,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "500",
            "auto.leader.rebalance.enable": "false",
            "offsets.topic.replication.factor": "1",
            "metadata.log.max.record.bytes.between.snapshots": "4000",
            "metadata.max.idle.interval.ms": "5000",
            "controlled.shutdown.retry.backoff.ms": "300",
        }
        for node in (*CONTROLLERS, *BROKERS):
            is_controller = node in CONTROLLERS
            role, name = ("controller", "CONTROLLER") if is_controller else ("broker", "PLAINTEXT")
            place = directory / f"node-{node}"
            settings = {
                **common,
                "node.id": str(node),
                "process.roles": role,
                "listeners": f"{name}://localhost:{self.ports[node]}",
                "log.dirs": str(place / "data"),
            }
            if not is_controller:
                settings["broker.rack"] = f"rack-{node % 2}"
            self.nodes[node] = Node(place, settings, "Kafka Server started")

    # --- the cluster ---------------------------------------------------------------------------

    def begin(self) -> None:
        ids = {c: uuid_to_text(bytes([9, c]) + bytes(13) + b"\x07") for c in CONTROLLERS}
        voters = ",".join(f"{c}@localhost:{self.ports[c]}:{ids[c]}" for c in CONTROLLERS)
        for node_id, node in self.nodes.items():
            arguments = ["--initial-controllers", voters] if node_id in CONTROLLERS else []
            node.format(CLUSTER_ID, *arguments)
        self.together(CONTROLLERS, Node.run)
        self.together(BROKERS, Node.run)

    def together(self, nodes: tuple[int, ...], do: Callable[[Node], Any]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(do, [self.nodes[n] for n in nodes]))

    def end(self) -> None:
        """Stop all running nodes one after the other, brokers first."""
        for node_id in (*BROKERS, *CONTROLLERS):
            self.nodes[node_id].stop()

    def curtain(self) -> None:
        """Call `end`, and note its elections while all replicas are in sync: each broker hands
        over."""
        self.end()
        for name, leader in (
            (f"{TOPIC}-0", 2), (f"{TOPIC}-0", 3), (f"{TOPIC}-1", 3), (f"{MOVED}-0", 3),
        ):  # fmt: skip
            self.truth.append({"partition": name, "to": leader, "kind": "isr"})

    @property
    def servers(self) -> str:
        return ",".join(f"localhost:{self.ports[b]}" for b in BROKERS)

    def tool(self, *arguments: str) -> str:
        done = run_kafka_tool(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def leaders(self) -> dict[str, int]:
        """Return the leader of each partition from the brokers' metadata."""
        found = listed(AdminClient({"bootstrap.servers": self.servers, "log_level": 0}))
        return {
            f"{topic.topic}-{index}": p.leader
            for topic in found.topics.values()
            for index, p in topic.partitions.items()
            if topic.topic in (TOPIC, MOVED)
        }

    def isr(self, name: str) -> set[int]:
        topic, _, index = name.rpartition("-")
        found = listed(AdminClient({"bootstrap.servers": self.servers, "log_level": 0}))
        return set(found.topics[topic].partitions[int(index)].isrs)

    def expect(self, kind: str | None, **leaders: int) -> None:
        """Wait until these partitions of the topic (`p0=2`) have these leaders, and note the
        elections; without a kind there was no election."""
        for key, leader in leaders.items():
            name = f"{TOPIC}-{key[1:]}"
            until(f"{name} led by {leader}", partial(self.leads, name, leader))
            if kind is not None:
                self.truth.append({"partition": name, "to": leader, "kind": kind})
            print(f"{name} -> {leader} {kind or 'nobody elected'}", flush=True)

    def in_sync(self, *members: int) -> None:
        for index in (0, 1):
            name = f"{TOPIC}-{index}"
            until(f"{name} in sync", partial(self.has_isr, name, set(members)))

    def leads(self, name: str, leader: int) -> bool:
        return self.leaders()[name] == leader

    def has_isr(self, name: str, members: set[int]) -> bool:
        return self.isr(name) == members

    # --- the story -----------------------------------------------------------------------------

    def tell(self) -> None:
        """Play all chapters; each ends with all three brokers up and in sync."""
        self.create()
        self.reassign()
        self.eligible_replica_returns()
        self.controller_dies()
        self.last_known_leader_returns()
        self.operator_elects_uncleanly()

    def create(self) -> None:
        create = ["--bootstrap-server", self.servers, "--create", "--topic"]
        self.tool(
            TOPICS, *create, TOPIC, "--replica-assignment", "1:2:3,2:3:1",
            "--config", "min.insync.replicas=2",
        )  # fmt: skip
        self.tool(TOPICS, *create, MOVED, "--replica-assignment", "1:2")
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(200):
            producer.produce(TOPIC, str(number).encode() * 20, partition=number % 2)
        assert producer.flush(60) == 0
        self.in_sync(1, 2, 3)

    def reassign(self) -> None:
        """Reassign away from broker 1, the leader: its replica is removed, so broker 2 leads."""
        plan = self.directory / "plan.json"
        move = {"topic": MOVED, "partition": 0, "replicas": [2, 3]}
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        arguments = ["--bootstrap-server", self.servers, "--reassignment-json-file", str(plan)]
        self.tool(REASSIGN, *arguments, "--execute")
        name = f"{MOVED}-0"
        until("the reassignment", lambda: self.leaders()[name] == 2 and self.isr(name) == {2, 3})
        self.truth.append({"partition": name, "to": 2, "kind": "isr"})

    def prefer(self) -> None:
        """Elect the preferred leaders; this counts as an election only where they did not lead."""
        before = self.leaders()
        self.in_sync(1, 2, 3)
        self.tool(
            ELECT, "--bootstrap-server", self.servers, "--election-type", "preferred",
            "--all-topic-partitions",
        )  # fmt: skip
        for index, preferred in ((0, 1), (1, 2)):
            moved = before[f"{TOPIC}-{index}"] != preferred
            self.expect("preferred" if moved else None, **{f"p{index}": preferred})
        self.note_moved(2, "")

    def note_moved(self, leader: int, kind: str) -> None:
        """Note the second topic's leader: it goes through the same kills, with min ISR 1."""
        name = f"{MOVED}-0"
        until(f"{name} led by {leader}", lambda: self.leaders()[name] == leader)
        if kind:
            self.truth.append({"partition": name, "to": leader, "kind": kind})

    def go_down(self, first: Callable[[Node], Any], second: Callable[[Node], Any]) -> None:
        """Stop broker 1 cleanly, broker 2 and 3 by the given functions: no leader is left."""
        self.nodes[1].stop()
        self.expect("isr", p0=2)
        first(self.nodes[2])
        self.expect("isr", p0=3, p1=3)
        self.note_moved(3, "isr")
        second(self.nodes[3])
        time.sleep(8)  # no broker is left to report that broker 3 was fenced

    def eligible_replica_returns(self) -> None:
        """Restart broker 2, which has flushed and is in the ELR: it may lead, cleanly. So may
        broker 3 in the other topic, where it was the last."""
        self.go_down(Node.stop, Node.stop)
        self.nodes[2].run()
        self.expect("elr", p0=2, p1=2)
        self.nodes[3].run()
        self.note_moved(3, "elr")
        self.nodes[1].run()
        self.in_sync(1, 2, 3)
        self.settle_moved()
        self.prefer()

    def controller_dies(self) -> None:
        active = self.active()
        self.nodes[active].kill()
        until("another controller", lambda: self.active() not in (active, 0))
        self.truth.append({"partition": None, "to": self.active(), "kind": "quorum"})
        self.nodes[active].run()

    def active(self) -> int:
        """Return the controller that became active last, by the controllers' logs; 0
        without one."""
        last = ("", 0)
        for controller in CONTROLLERS:
            node = self.nodes[controller]
            running = node._process is not None and node._process.poll() is None
            lines = re.findall(
                r"^(\S+ \S+) .*Becoming the active controller", node.whole_log, re.MULTILINE
            )
            if lines and running:
                last = max(last, (lines[-1], controller))
        return last[1]

    def last_known_leader_returns(self) -> None:
        """Kill all brokers: none surely has every record, so the last leader is elected on its
        return."""
        self.go_down(Node.kill, Node.kill)
        self.nodes[2].run()
        self.nodes[3].run()
        self.expect("last-known-leader", p0=3, p1=3)
        self.note_moved(3, "last-known-leader")
        self.nodes[1].run()
        self.in_sync(1, 2, 3)
        self.settle_moved()
        self.prefer()

    def operator_elects_uncleanly(self) -> None:
        self.go_down(Node.kill, Node.kill)
        self.nodes[2].run()
        for index in (0, 1):
            self.tool(
                ELECT, "--bootstrap-server", self.servers, "--election-type", "unclean",
                "--topic", TOPIC, "--partition", str(index),
            )  # fmt: skip
        self.expect("unclean", p0=2, p1=2)
        self.nodes[3].run()
        self.note_moved(3, "last-known-leader")
        self.nodes[1].run()
        self.in_sync(1, 2, 3)
        self.settle_moved()
        self.prefer()

    def settle_moved(self) -> None:
        """Wait until both replicas are in sync again; the preferred one (2) leads after
        `prefer`."""
        name = f"{MOVED}-0"
        until(f"{name} in sync", lambda: self.isr(name) == {2, 3})
        if self.leaders()[name] != 2:
            self.truth.append({"partition": name, "to": 2, "kind": "preferred"})

    # --- what is kept --------------------------------------------------------------------------

    def controllers_say(self) -> list[dict[str, Any]]:
        """Return every change of a leader in the controllers' logs, in order.

        A controller logs the records that it replays, so each appears once per controller; they are
        equal.
        """
        seen: dict[tuple[str, int], dict[str, Any]] = {}
        for controller in CONTROLLERS:
            for match in _CHANGE.finditer(self.nodes[controller].whole_log):
                leader, epoch = _LEADER.search(match["changes"]), _EPOCH.search(match["changes"])
                if leader is None or epoch is None:
                    continue
                seen[match["name"], int(epoch[2])] = {
                    "partition": match["name"],
                    "from": int(leader[1]),
                    "to": int(leader[2]),
                    "leader_epoch": int(epoch[2]),
                    "unclean": bool(match["unclean"]),
                }
        return [seen[key] for key in sorted(seen)]

    def quorum_leaders(self) -> list[list[int]]:
        """Return [epoch, leader] of elections in the controllers' logs. A controller that is
        elected while the cluster stops leads its epoch without ever becoming the active controller.
        """
        found = set()
        for controller in CONTROLLERS:
            text = self.nodes[controller].whole_log
            for match in re.finditer(r"Completed transition to Leader\(.*?\bepoch=(\d+)", text):
                found.add((int(match[1]), controller))
        return [list(one) for one in sorted(found)]


def dumped(path: Path) -> list[dict[str, Any]]:
    """Return the metadata records of a segment or snapshot as kafka-dump-log prints them."""
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", kafka_class_path(), DUMP, "--cluster-metadata-decoder",
         "--files", str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.findall(r"^\| offset: (\d+) .*?payload: (.*)$", done.stdout, re.MULTILINE)
    return [{"offset": int(offset), **json.loads(text)} for offset, text in found]


def collect(story: Story, out: Path) -> None:
    """Copy the metadata directories, the expected elections, and Kafka's own dump of them, below
    `out`."""
    for controller in CONTROLLERS:
        data = story.directory / f"node-{controller}" / "data"
        target = out / f"node-{controller}"
        target.mkdir(parents=True)
        shutil.copy(data / "meta.properties", target)
        shutil.copy(data / "__cluster_metadata-0" / "quorum-state", target)
        log = target / "__cluster_metadata-0"
        log.mkdir()
        for file in sorted((data / "__cluster_metadata-0").iterdir()):
            if file.name.endswith((".log", ".checkpoint")):
                (log / file.name).write_bytes(file.read_bytes())
    files = sorted((out / f"node-{CONTROLLERS[0]}" / "__cluster_metadata-0").iterdir())
    truth = {
        "script": story.truth,
        "controllers": story.controllers_say(),
        "quorum": story.quorum_leaders(),
        "dumped": {file.name: dumped(file) for file in files},
    }
    (out / "truth.json").write_text(json.dumps(truth))


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-story-") as scratch:
        story = Story(Path(scratch) / "cluster")
        try:
            story.begin()
            story.tell()
            story.curtain()
        finally:
            story.end()
        kept = Path(scratch) / "story"
        collect(story, kept)
        with tarfile.open(out / "story.tar.xz", "w:xz") as archive:
            archive.add(kept, "story")
    print(f"{out / 'story.tar.xz'}: {(out / 'story.tar.xz').stat().st_size} bytes")


if __name__ == "__main__":
    end_on_sigterm()
    main()
