"""`up`, `server` and the other commands as processes, as people and scripts use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from testkit.processes.nodes import KraftboxNode
from testkit.processes.ports import free_port

pytestmark = pytest.mark.e2e

READY_LINE = "Transitioning from RECOVERY to RUNNING"


def kraftbox(
    *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kraftbox", *arguments],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=60,
        env={**os.environ, **(env or {})},
        check=False,
    )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftboxNode]:
    started = KraftboxNode(tmp_path_factory.mktemp("commands") / "node").start()
    yield started
    assert started.stop() == 0


def run(node: KraftboxNode, *arguments: str, stdin: str | None = None) -> str:
    """Return the standard output of a command that succeeds."""
    done = kraftbox(*arguments, stdin=stdin, env={"KRAFTBOX_BOOTSTRAP": node.bootstrap})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_topics(node: KraftboxNode) -> None:
    run(node, "topics", "create", "a-topic", "--partitions", "3", "--config", "retention.ms=60000")
    described = json.loads(run(node, "topics", "describe", "a-topic", "--json"))
    assert [p["leader"] for p in described[0]["partitions"]] == [1, 1, 1]
    assert [(p["elr"], p["lastKnownElr"]) for p in described[0]["partitions"]] == [([], [])] * 3
    run(node, "topics", "alter", "a-topic", "--partitions", "5")
    listed = json.loads(run(node, "topics", "list", "--json"))
    assert {t["name"]: len(t["partitions"]) for t in listed}["a-topic"] == 5
    again = kraftbox("topics", "create", "a-topic", "--bootstrap-server", node.bootstrap)
    assert again.returncode == 1
    assert "TOPIC_ALREADY_EXISTS" in again.stderr
    run(node, "topics", "create", "a-topic", "--if-not-exists")
    run(node, "topics", "delete", "a-topic")
    run(node, "topics", "delete", "a-topic", "--if-exists")


def test_elections(node: KraftboxNode) -> None:
    run(node, "topics", "create", "elected", "--partitions", "2")
    assert run(node, "elect", "elected-1", "elected-0") == (
        "elected-1: not needed: the preferred leader leads\n"
        "elected-0: not needed: the preferred leader leads\n"
    )
    assert run(node, "elect", "--all", "--type", "unclean") == ""
    refused = kraftbox(
        *("elect", "elected-0", "elected-2", "--type", "unclean", "--json"),
        *("--bootstrap-server", node.bootstrap),
    )
    assert refused.returncode == 1
    told = {one["partition"]: one for one in json.loads(refused.stdout)}
    assert [told[0][key] for key in ("elected", "error", "message")] == [
        False,
        "ELECTION_NOT_NEEDED",
        "has one",
    ]
    assert [told[2][key] for key in ("elected", "error")] == [False, "UNKNOWN_TOPIC_OR_PARTITION"]
    told = json.loads(run(node, "elect", "--explain", "elected-1", "--json"))
    assert [told[key] for key in ("leader", "isr", "elr", "last_known_elr", "waits_for")] == [
        1,
        [1],
        [],
        [],
        [],
    ]
    assert told["strategy"] == "Balanced"
    assert told["candidates"] == [
        {
            "broker": 1,
            "log": {"epoch": -1, "end_offset": 0, "bytes": 0},
            "sets": ["isr"],
            "eligible": True,
            "reason": None,
            "answer": None,
            "local_log": None,
        }
    ]
    shown = run(node, "elect", "--explain", "elected-1")
    assert shown.startswith("elected-1: broker 1 leads since 20")
    assert " (leader epoch 0), as the first leader of the new partition; preferred is 1\n" in shown
    gone = kraftbox("elect", "--explain", "elected-9", "--bootstrap-server", node.bootstrap)
    assert gone.returncode == 1
    assert "elected-9: UNKNOWN_TOPIC_OR_PARTITION" in gone.stderr
    run(node, "topics", "delete", "elected")


def test_configs(node: KraftboxNode) -> None:
    run(node, "topics", "create", "configured")
    run(node, "configs", "alter", "--topic", "configured", "--set", "retention.ms=60000")
    shown = json.loads(run(node, "configs", "describe", "--topic", "configured", "--json"))
    assert [(c["name"], c["value"], c["source"]) for c in shown] == [
        ("min.insync.replicas", "1", "dynamic default"),
        ("retention.ms", "60000", "topic"),
    ]
    refused = kraftbox(
        *("configs", "alter", "--topic", "configured", "--set", "segment.bytes=1"),
        *("--bootstrap-server", node.bootstrap),
    )
    assert refused.returncode == 1
    assert "segment.bytes=1: must be an integer of at least 1048576" in refused.stderr
    run(node, "configs", "alter", "--topic", "configured", "--delete", "retention.ms")
    shown = json.loads(run(node, "configs", "describe", "--topic", "configured", "--json"))
    assert [c["name"] for c in shown] == ["min.insync.replicas"]
    everything = run(node, "configs", "describe", "--topic", "configured", "--all", "--json")
    assert len(json.loads(everything)) == 37


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(node: KraftboxNode, codec: str) -> None:
    topic = f"lines-{codec}"
    lines = "".join(f"key{n}|line {n} ä\n" for n in range(2000))
    run(node, "topics", "create", topic, "--partitions", "2")
    written = run(node, "produce", topic, "-K", "|", "-z", codec, "--json", stdin=lines)
    assert json.loads(written) == {"topic": topic, "records": 2000}
    read = run(node, "consume", topic, "--exit", "--keys")
    assert sorted(read.splitlines()) == sorted(lines.replace("|", "\t").splitlines())
    one = json.loads(run(node, "consume", topic, "--exit", "-p", "1", "-n", "1", "--json"))
    assert (one["partition"], one["offset"]) == (1, 0)


def test_groups(node: KraftboxNode) -> None:
    run(node, "produce", "grouped", stdin="a\nb\nc\n")
    read = run(node, "consume", "grouped", "--group", "g", "--from-beginning", "-n", "3")
    assert read == "a\nb\nc\n"
    described = json.loads(run(node, "groups", "describe", "g", "--json"))
    assert described["offsets"][0]["committed"] == 3
    assert described["offsets"][0]["lag"] == 0
    reset = ("groups", "reset-offsets", "g", "--topic", "grouped")
    run(node, *reset, "--to-offset", "1")
    again = run(node, "consume", "grouped", "--group", "g", "-n", "2")
    assert again == "b\nc\n"
    moved = run(node, *reset, "--shift-by", "-2", "--json")
    assert [one["offset"] for one in json.loads(moved)] == [1]
    moved = run(node, *reset, "--to-time", "2026-01-01", "--json")
    assert [one["offset"] for one in json.loads(moved)] == [0]
    assert "g" in [g["groupId"] for g in json.loads(run(node, "groups", "list", "--json"))]
    run(node, "groups", "delete", "g")
    gone = kraftbox("groups", "describe", "g", "--bootstrap-server", node.bootstrap)
    assert gone.returncode == 1


def test_records_go_round(node: KraftboxNode) -> None:
    """Headers, a tombstone, times, partitions: the output of `consume --json` is produced again."""
    run(node, "topics", "create", "whole", "copy", "--partitions", "2")
    written = ("produce", "whole", "-K", ":", "--tombstones", "-H", "a=1")
    run(node, *written, "-p", "1", "--timestamp", "2026-05-01T12:00:00", stdin="k:v\ngone:\n")
    run(node, "produce", "whole", "-p", "1", "--rate", "100", stdin="last\n")
    printed = run(node, "consume", "whole", "--exit", "--json")
    run(node, "produce", "copy", "--format", "json", stdin=printed)
    form = r"%p %o %T %k=%s %S %h\n"
    assert run(node, "consume", "copy", "--exit", "-f", form).splitlines()[:2] == [
        "1 0 1777636800000 k=v 1 a=1",
        "1 1 1777636800000 gone= -1 a=1",
    ]
    assert run(node, "consume", "copy", "--exit", "--offset", "-1") == "last\n"
    since = run(node, "consume", "copy", "--exit", "-o", "@2026-05-01T12:00:01")
    assert since == "last\n"
    missing = ("consume", "copy", "-p", "1", "-o", "4", "-b", node.bootstrap)
    refused = kraftbox(*missing)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "copy-1: offset 4 is out of range (0 to 3)" in refused.stderr


def test_mistakes_of_newcomers(node: KraftboxNode, tmp_path: Path) -> None:
    port = node.bootstrap.rpartition(":")[2]
    second = kraftbox("up", "--dir", str(tmp_path / "other"), "--port", port)
    assert second.returncode == 1 and not (tmp_path / "other").exists()
    assert second.stderr == (
        f"kraftbox: cannot listen on 127.0.0.1:{port}: Address already in use "
        "(choose another with --port, or --port 0 for a free one)\n"
    )
    typo = kraftbox("produce", "ordrs", "--bootstrap-server", node.bootstrap, stdin="a\n")
    assert typo.returncode == 0
    assert typo.stderr == "kraftbox: created topic ordrs with 1 partition\n"
    again = kraftbox("produce", "ordrs", "--bootstrap-server", node.bootstrap, stdin="a\n")
    assert (again.returncode, again.stderr) == (0, "")


def test_up_resumes_its_directory_and_address_and_refuses_a_running_one(tmp_path: Path) -> None:
    node = KraftboxNode(tmp_path / "up").start()
    run(node, "produce", "kept", stdin="one\ntwo\n")
    second = kraftbox("up", "--dir", str(node.directory))
    assert second.returncode == 1
    assert "in use" in second.stderr
    address = node.bootstrap
    assert node.stop() == 0
    node.port = 0
    node.start()
    assert node.bootstrap == address
    assert run(node, "consume", "kept", "--exit") == "one\ntwo\n"
    dumped = run(node, "dump-log", str(node.directory / "data" / "kept-0"), "--json")
    values = [json.loads(line).get("value") for line in dumped.splitlines()]
    assert [value for value in values if value in ("one", "two")] == ["one", "two"]
    assert node.stop() == 0

    # A directory from before single nodes were clusters of one.
    (node.directory / "cluster.properties").unlink()
    (node.directory / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://{address},CONTROLLER://127.0.0.1:0\n"
        f"controller.quorum.voters=1@127.0.0.1:0\nlog.dirs={node.directory}/data\n"
        "kraftbox.http.listener=127.0.0.1:0\n"
    )
    node.start()
    assert node.bootstrap == address
    assert run(node, "consume", "kept", "--exit") == "one\ntwo\n"
    assert node.stop() == 0


def test_up_warns_of_unknown_keys_and_refuses_bad_values(tmp_path: Path) -> None:
    directory = str(tmp_path / "up")
    command = [sys.executable, "-m", "kraftbox", "up", "--dir", directory, "--port", "0"]
    with subprocess.Popen(
        [*command, "--set", "no.such.key=1"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(line for line in lines if "no.such.key" in line).startswith("  warning: ")
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    refused = kraftbox("up", "--dir", directory, "--set", "num.partitions=none")
    assert refused.returncode == 1
    assert "num.partitions=none: must be an integer of at least 1" in refused.stderr


def test_ctrl_c_is_a_clean_stop(tmp_path: Path) -> None:
    node = KraftboxNode(tmp_path / "up").start()
    assert node._end(signal.SIGINT) == 0
    assert (node.directory / "data" / ".kafka_cleanshutdown").exists()


def test_server_with_kafkas_defaults_and_the_environment(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:19093\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'data'}\nkraftbox.http.listener=127.0.0.1:0\n"
        "some.plugin.key=1\n"
    )
    unformatted = kraftbox("server", str(config))
    assert unformatted.returncode == 1
    assert "not formatted" in unformatted.stderr
    cluster_id = kraftbox("storage", "random-uuid").stdout.strip()
    form = ("storage", "format", "--config", str(config), "--cluster-id", cluster_id)
    assert kraftbox(*form).returncode == 1, "the quorum was not chosen"
    assert kraftbox(*form, "--standalone").returncode == 0
    refused = kraftbox(*form, "--standalone")
    assert refused.returncode == 1
    assert "already formatted" in refused.stderr
    info = json.loads(kraftbox("storage", "info", "--config", str(config), "--json").stdout)
    assert info["directories"][0]["clusterId"] == cluster_id
    assert info["directories"][0]["features"]["metadata.version"] >= 30
    server = subprocess.Popen(
        [sys.executable, "-m", "kraftbox", "server", str(config)]
        + ["--override", "log.retention.hours=1"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "KAFKA_NUM_PARTITIONS": "4", "KAFKA_KRAFTBOX_LOG_FORMAT": "json"},
    )
    try:
        lines = until_ready(server)
        assert any("some.plugin.key" in line for line in lines)
        health = next(e["address"] for e in map(json.loads, lines) if "address" in e)
        with urllib.request.urlopen(f"http://{health}/readyz", timeout=10) as reply:
            assert reply.read() == b"ready\n"
        shown = kraftbox(
            *("configs", "describe", "--broker", "7", "--json"),
            *("--bootstrap-server", f"127.0.0.1:{port}"),
        )
        values = {entry["name"]: entry["value"] for entry in json.loads(shown.stdout)}
        assert values["num.partitions"] == "4"
        assert values["log.retention.hours"] == "1"
        assert "offsets.topic.replication.factor" not in values, "Kafka's default"
    finally:
        server.terminate()
        rest, _ = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "Stopped" in rest


def until_ready(server: subprocess.Popen[str]) -> list[str]:
    assert server.stdout is not None
    lines = []
    for line in server.stdout:
        lines.append(line)
        if READY_LINE in line:
            return lines
    raise AssertionError("".join(lines))
