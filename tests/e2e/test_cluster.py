"""Local clusters as started by people, and operations on their nodes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftbox.launcher import control
from kraftbox.launcher.early import start_fork_server
from kraftbox.launcher.place import ClusterPlace, plan_cluster
from kraftbox.launcher.plan import AskedShape
from kraftbox.launcher.supervisor import ForkServerProcess
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until

pytestmark = pytest.mark.e2e

WAIT_S = 30
FENCED = "Fencing a broker without a heartbeat"


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(shown) and not shown.startswith("Z")


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Callable[..., KraftboxCluster]]:
    made = []

    def make(*options: str) -> KraftboxCluster:
        cluster = KraftboxCluster(tmp_path / "cluster", "--port", "0", *options)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.end(signal.SIGKILL)
    for cluster in made:
        place = ClusterPlace(cluster.directory)
        if cluster.directory.exists():
            assert control.wait_until_free(place, WAIT_S * 1000), "nodes outlive their supervisor"


def test_three_controllers_and_three_brokers(clusters: Callable[..., KraftboxCluster]) -> None:
    cluster = clusters("--controllers", "3", "--brokers", "3", "--racks", "a,b").start()
    assert cluster.bootstrap.count(",") == 2
    found = json.loads(cluster.command("status", "--json"))
    assert [(n["id"], n["roles"], n["rack"], n["state"]) for n in found["nodes"]] == [
        (1, "broker", "a", "running"),
        (2, "broker", "b", "running"),
        (3, "broker", "a", "running"),
        (101, "controller", None, "running"),
        (102, "controller", None, "running"),
        (103, "controller", None, "running"),
    ]
    leader = found["quorum"]["leader"]
    assert leader in (101, 102, 103)
    assert [v["id"] for v in found["quorum"]["voters"]] == [101, 102, 103]
    cluster.run("topics", "create", "t", "--partitions", "6", "-b", cluster.bootstrap)
    assert cluster.status()["partitions"] == {
        "total": 6,
        "leaderless": 0,
        "underReplicated": 0,
        "waiting": [],
    }

    # The leader of the quorum fails; another takes over, and it comes back to the same address.
    before = cluster.node(leader)
    assert cluster.command("node", "kill", str(leader)) == f"node {leader} is killed\n"
    assert cluster.node(leader)["state"] == "killed"
    until(
        "another leader",
        lambda: (cluster.status()["quorum"] or {}).get("leader") not in (None, -1, leader),
    )
    cluster.command("node", "start", str(leader))
    after = cluster.node(leader)
    assert (after["state"], after["starts"]) == ("running", 2)
    assert after["listeners"] == before["listeners"] and after["pid"] != before["pid"]

    # A killed broker need not wait for the session of its dead process: the controller has fenced
    # it because its connection broke.
    cluster.command("node", "kill", "3")
    cluster.command("node", "start", "3")
    assert cluster.node(3)["state"] == "running"
    files = ClusterPlace(cluster.directory).node_logs()
    logs = [files[node_id].read_text() for node_id in (101, 102, 103)]
    fenced = [line for log in logs for line in log.splitlines() if FENCED in line]
    assert fenced and all("broker=3 cause=connection-lost" in line for line in fenced), fenced

    # A cleanly stopped broker has no leaders left, and has them again afterwards.
    cluster.command("node", "stop", "2")
    assert cluster.node(2)["exitCode"] == 0
    assert cluster.node(2)["leaders"] == 0
    cluster.command("node", "start", "2")
    until("leaders again", lambda: cluster.status()["partitions"]["leaderless"] == 0)

    cluster.command("node", "pause", "1", "3")
    assert [cluster.node(n)["state"] for n in (1, 3)] == ["paused", "paused"]
    refused = cluster.run("node", "pause", "1", "--dir", str(cluster.directory))
    assert refused.returncode == 1 and "node 1 is paused" in refused.stderr
    cluster.command("node", "resume", "1", "3")
    assert cluster.node(1)["state"] == "running"

    logged = cluster.command("logs", "--lines", "1000")
    assert all(f"{n:>3} | [" in logged for n in (1, 2, 3, 101, 102, 103))
    assert "node_id=102" in cluster.command("logs", "102", "--lines", "1000")
    pids = [node["pid"] for node in cluster.status()["nodes"]]
    assert cluster.command("down") == "the cluster has stopped\n"
    assert not any(is_alive(pid) for pid in pids)
    assert cluster.process is not None and cluster.process.wait() == 0


def test_addresses_and_data_stay_and_a_running_one_is_refused(
    clusters: Callable[..., KraftboxCluster],
) -> None:
    cluster = clusters("--brokers", "2", "--combined").start()
    address = cluster.bootstrap
    cluster.run("topics", "create", "kept", "-b", address)
    second = cluster.run("up", "--dir", str(cluster.directory))
    assert second.returncode == 1 and "its cluster is running" in second.stderr
    assert cluster.end() == (0, "")

    cluster.options = ("--port", "0")
    cluster.start()
    assert cluster.bootstrap == address
    assert "kept" in cluster.run("topics", "list", "-b", address).stdout
    assert cluster.end(signal.SIGINT) == (0, "")
    gone = cluster.run("status", "--dir", str(cluster.directory))
    assert gone.returncode == 1 and "no cluster is running" in gone.stderr
    changed = cluster.run("up", "--controllers", "3", "--dir", str(cluster.directory))
    assert changed.returncode == 1 and "only brokers can be added" in changed.stderr


def test_a_dead_supervisor_takes_its_nodes_along_and_leaves_the_directory_usable(
    clusters: Callable[..., KraftboxCluster],
) -> None:
    cluster = clusters("--brokers", "2", "--combined").start()
    address = cluster.bootstrap
    pids = [node["pid"] for node in cluster.status()["nodes"]]
    cluster.command("node", "pause", "2")
    assert cluster.end(signal.SIGKILL)[0] == -signal.SIGKILL
    # The next start waits for processes of the last one to end.
    cluster.start()
    assert not any(is_alive(pid) for pid in pids)
    assert cluster.bootstrap == address
    assert cluster.end() == (0, "")


def test_a_dead_fork_server_ends_the_cluster(clusters: Callable[..., KraftboxCluster]) -> None:
    cluster = clusters("--brokers", "1", "--controllers", "1").start()
    told = control.status(ClusterPlace(cluster.directory))
    os.kill(told["forkServerPid"], signal.SIGKILL)
    until("nodes end", lambda: not any(is_alive(n["pid"]) for n in told["nodes"]))
    assert cluster.process is not None
    code, complaint = cluster.process.wait(WAIT_S), cluster.process.communicate()[1]
    assert code == 1 and "the fork server exited" in complaint


def test_a_node_that_crashes_is_called_failed(clusters: Callable[..., KraftboxCluster]) -> None:
    cluster = clusters("--brokers", "2", "--combined").start()
    os.kill(cluster.node(2)["pid"], signal.SIGABRT)
    until("the crash is noticed", lambda: cluster.node(2)["state"] == "failed")
    assert cluster.node(2)["exitCode"] == -signal.SIGABRT
    code, complaint = cluster.end()
    assert code == 0 and "node 2 exited unexpectedly: signal 6" in complaint


def test_cluster_with_invalid_options_fails_with_reason(
    clusters: Callable[..., KraftboxCluster],
) -> None:
    for options, why in (
        (("--set", "num.partitions=x"), "num.partitions"),
        (("--set", "node.id=4"), "`up` sets it for each node"),
        (("--controllers", "0"), "must be from 1"),
    ):
        with pytest.raises(RuntimeError, match=why):
            clusters("--brokers", "2", *options).start()


def test_a_plain_up_is_looked_after_like_any_cluster(
    clusters: Callable[..., KraftboxCluster],
) -> None:
    """A cluster of one: visible in status and logs, killed and started again, and taken down."""
    cluster = clusters().start()
    (node,) = cluster.status()["nodes"]
    assert (node["id"], node["roles"], node["state"]) == (1, "broker,controller", "running")
    assert cluster.status()["quorum"]["leader"] == 1
    assert node["pid"] != cluster.status()["pid"]
    assert "node_id=1" in cluster.command("logs", "1", "--lines", "1000")
    cluster.command("node", "kill", "1")
    assert cluster.node(1)["state"] == "killed"
    cluster.command("node", "start", "1")
    assert cluster.status()["partitions"] == {
        "total": 0,
        "leaderless": 0,
        "underReplicated": 0,
        "waiting": [],
    }
    assert cluster.command("down") == "the cluster has stopped\n"
    assert cluster.process is not None and cluster.process.wait() == 0


def test_a_plain_up_ends_with_its_node(clusters: Callable[..., KraftboxCluster]) -> None:
    cluster = clusters().start()
    os.kill(cluster.node(1)["pid"], signal.SIGABRT)
    assert cluster.process is not None
    _, complaint = cluster.process.communicate(timeout=WAIT_S)
    assert cluster.process.returncode == 1
    assert complaint == "kraftbox: node 1 exited unexpectedly: signal 6\n"


def test_a_plain_up_grows_into_a_cluster_of_the_same_data(
    clusters: Callable[..., KraftboxCluster],
) -> None:
    cluster = clusters().start()
    address = cluster.bootstrap
    cluster.run("topics", "create", "kept", "-b", address)
    assert cluster.end() == (0, "")
    cluster.options = ("--brokers", "2", "--port", "0")
    cluster.start()
    assert cluster.bootstrap.split(",")[0] == address
    assert [node["roles"] for node in cluster.status()["nodes"]] == ["broker,controller", "broker"]
    assert "kept" in cluster.run("topics", "list", "-b", address).stdout
    wide = ("topics", "create", "wide", "--replication-factor", "2", "-b", address)
    assert cluster.run(*wide).returncode == 0
    until("both in sync", lambda: cluster.status()["partitions"]["underReplicated"] == 0)
    moved = cluster.run("reassign", "kept-0", "--to", "2", "--wait", "60", "-b", address)
    assert (moved.returncode, moved.stderr) == (0, "")
    described = cluster.run("topics", "describe", "kept", "--json", "-b", address)
    (partition,) = json.loads(described.stdout)[0]["partitions"]
    assert (partition["replicas"], partition["leader"]) == ([2], 2)
    assert cluster.end() == (0, "")


def test_detached(tmp_path: Path) -> None:
    """A file starts it; its settings and topics are there when it counts as ready."""
    cluster = KraftboxCluster(tmp_path / "single")
    place = ("--dir", str(cluster.directory))
    testbed = tmp_path / "testbed.yaml"
    testbed.write_text(
        "combined: true\nsettings: {num.partitions: 4}\ntopics: {orders: {partitions: 3}}\n"
    )
    done = cluster.run("up", "--detach", "--file", str(testbed), "--port", "0", *place)
    try:
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("bootstrap.servers=127.0.0.1:")
        address = done.stdout.splitlines()[0].partition("=")[2]
        listed = json.loads(cluster.run("topics", "list", "--json", "-b", address).stdout)
        assert [(t["name"], len(t["partitions"])) for t in listed] == [("orders", 3)]
        made = cluster.run("topics", "create", "more", "-b", address)
        assert made.stdout == "created more with 4 partitions\n"
        (node,) = cluster.status()["nodes"]
        assert (node["roles"], node["state"]) == ("broker,controller", "running")
        for options in (("--detach",), ()):
            again = cluster.run("up", *options, *place)
            assert again.returncode == 1 and "its cluster is running" in again.stderr
    finally:
        assert cluster.command("down") == "the cluster has stopped\n"
    # The same directory in the foreground.
    cluster.start()
    assert cluster.bootstrap == done.stdout.splitlines()[0].partition("=")[2]
    assert cluster.end() == (0, "")


def test_a_plain_up_that_is_detached_is_looked_after_and_grows(tmp_path: Path) -> None:
    """Every command finds it by its directory alone, and three brokers have the records of one."""
    cluster = KraftboxCluster(tmp_path / "cluster")
    lines = "".join(f"line {number}\n" for number in range(100))

    def up(*options: str) -> list[str]:
        """Start the cluster and return its addresses."""
        told = cluster.command("up", "--detach", "--port", "0", *options)
        return told.splitlines()[0].removeprefix("bootstrap.servers=").split(",")

    (address,) = up()
    try:
        assert "nodes: 1 running" in cluster.command("status")
        (node,) = json.loads(cluster.command("status", "--json"))["nodes"]
        assert (node["id"], node["roles"], node["state"]) == (1, "broker,controller", "running")
        assert "node_id=1" in cluster.command("logs", "1", "--lines", "1000")
        cluster.run("topics", "create", "kept", "-b", address)
        cluster.run("produce", "kept", "-b", address, stdin=lines)
        cluster.command("node", "kill", "1")
        assert cluster.node(1)["state"] == "killed" and not is_alive(node["pid"])
        cluster.command("node", "start", "1")
    finally:
        assert cluster.command("down") == "the cluster has stopped\n"
    again = cluster.run("status", "--dir", str(cluster.directory))
    assert (again.returncode, again.stdout) == (1, "") and "no cluster is running" in again.stderr

    addresses = up("--brokers", "3")
    try:
        assert addresses[0] == address
        nodes = cluster.status()["nodes"]
        assert [one["state"] for one in nodes] == ["running"] * 3
        assert [one["roles"] for one in nodes] == ["broker,controller", "broker", "broker"]
        for broker in addresses:
            read = cluster.run("consume", "kept", "--exit", "-b", broker)
            assert read.stdout == lines, read.stderr
        wide = ("topics", "create", "wide", "--replication-factor", "3", "-b", address)
        assert cluster.run(*wide).returncode == 0
        until("all in sync", lambda: cluster.status()["partitions"]["underReplicated"] == 0)
    finally:
        assert cluster.command("down") == "the cluster has stopped\n"
    assert not any(is_alive(one["pid"]) for one in nodes)


@pytest.mark.parametrize(("spawn", "times"), [(False, 10), (True, 2)])
def test_nodes_start_again_and_again_from_a_process_with_threads(
    tmp_path: Path, spawn: bool, times: int
) -> None:
    """The process that requests nodes never forks itself, so its threads do no harm."""
    place = ClusterPlace(tmp_path)
    known, plans = plan_cluster(place, AskedShape(1, 1, combined=True), 0, {}, "thread-test")
    place.prepare_nodes(plans)
    done = threading.Event()
    lock = threading.Lock()

    def work() -> None:
        while not done.is_set():
            with lock:
                sum(range(1000))
            done.wait(0.001)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    with open(place.log, "ab") as log:
        fork_server = ForkServerProcess(start_fork_server(log.fileno(), spawn=spawn))

    def event(kind: str) -> dict[str, Any]:
        while True:
            if not queue:
                readable, _, _ = select.select([fork_server], [], [], WAIT_S)
                assert readable, f"no {kind} within {WAIT_S} s: {place.log.read_text()}"
                got = fork_server.read()
                assert got is not None, place.log.read_text()
                queue.extend(got)
            found = queue.pop(0)
            assert found["event"] != "refused", found
            if found["event"] == kind:
                return found

    queue: list[dict[str, Any]] = []
    try:
        pids = set()
        for _ in range(times):
            fork_server.start(plans[0], known.cluster_id)
            pids.add(event("started")["pid"])
            assert event("ready")["addresses"] == [f"127.0.0.1:{known.ports[1].client}"]
            fork_server.signal(1, signal.SIGKILL)
            assert event("exited")["code"] == -signal.SIGKILL
        assert len(pids) == times
    finally:
        done.set()
        for thread in threads:
            thread.join()
        assert fork_server.end() == 0
