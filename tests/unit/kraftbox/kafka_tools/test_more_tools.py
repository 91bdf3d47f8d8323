"""Kafka's tools for operators: their files, options and output."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kraftbox.cli.output import CommandFailed
from kraftbox.cli.reassign import Moving
from kraftbox.kafka_tools import (
    TOOLS,
    cluster,
    delete_records,
    dump_log,
    features,
    log_dirs,
    offsets,
    reassign,
    run_class,
    server_start,
)
from kraftbox.kafka_tools import main as run_tool
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_log_dirs import DescribeLogDirsResponse

IMAGE = Path(__file__).resolve().parents[4] / "deploy/image"


def test_image_has_a_script_for_each_tool_and_no_other():
    """Health checks and init containers call /opt/kafka/bin/kafka-*.sh."""
    scripts = {path.stem: path for path in (IMAGE / "bin").glob("kafka-*.sh")}
    assert set(scripts) == set(TOOLS)
    for name, path in scripts.items():
        assert f'/opt/kraftbox/bin/kraftbox {name} "$@"' in path.read_text(), name
        assert path.stat().st_mode & 0o111 == 0o111, name


@pytest.mark.parametrize("name", ["bash-config", "configureDefaults", "configure", "launch", "run"])
def test_image_has_the_files_that_entrypoints_source(name: str):
    """Starters of Testcontainers source the first three and execute launch."""
    path = IMAGE / "etc" / name
    assert path.stat().st_mode & 0o111 == 0o111
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize(("given", "chosen"), [(None, "5L6g3nShT-eMCtK--X86sw"), ("a b", "a b")])
def test_sourced_defaults_export_a_cluster_id(given: str | None, chosen: str):
    script = ". ./bash-config; . ./configureDefaults; sh -c 'echo \"id=$CLUSTER_ID\"'"
    environ = {"PATH": "/usr/bin:/bin"} | ({} if given is None else {"CLUSTER_ID": given})
    done = subprocess.run(
        ["bash", "-c", script], cwd=IMAGE / "etc", env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"id={chosen}"


@pytest.mark.parametrize(
    "name", ["kafka-acls", "kafka-verifiable-producer", "kafka-verifiable-consumer"]
)
def test_tool_that_is_not_built_fails_at_once(name: str, capsys: pytest.CaptureFixture[str]):
    assert run_tool(name, ["--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "this tool is not supported" in capsys.readouterr().err


def test_run_class_finds_the_tool_of_a_class(capsys: pytest.CaptureFixture[str]):
    assert set(run_class.CLASSES.values()) <= set(TOOLS)
    with pytest.raises(SystemExit):
        run_tool("kafka-run-class", ["org.apache.kafka.tools.GetOffsetShell", "--time"])
    assert "kafka-get-offsets.sh" in capsys.readouterr().err
    assert run_tool("kafka-run-class", ["a.B"]) == 1
    assert "no tool replaces the class a.B" in capsys.readouterr().err


def test_server_start_reads_the_file_and_overrides_and_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KAFKA_NODE_ID", "9")
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nnum.partitions=2\n")
    served: list[dict[str, str]] = []
    monkeypatch.setattr(server_start, "serve", lambda found: served.append(found) or 0)
    assert server_start.main("kafka-server-start", [str(path), "--override", "node.id=3"]) == 0
    assert served == [{"node.id": "3", "num.partitions": "2"}]
    with pytest.raises(CommandFailed, match="NAME=VALUE"):
        server_start.main("kafka-server-start", [str(path), "--override", "x"])


def chosen(**given: Any) -> list[tuple[str, int]]:
    nothing = {"topic": None, "topic_partitions": None, "partitions": None}
    wanted = offsets.chosen_by(argparse.Namespace(**{**nothing, **given}))
    return [(topic, index) for topic in ("a", "ab") for index in range(4) if wanted(topic, index)]


def test_get_offsets_chooses_partitions_as_kafka_does():
    assert chosen(topic="a", partitions="0,3") == [("a", 0), ("a", 3)]
    assert chosen(topic="a.*", partitions="1") == [("a", 1), ("ab", 1)]
    assert chosen(topic_partitions="a:1-3,ab:-1") == [("a", 1), ("a", 2), ("ab", 0)]
    assert chosen(topic_partitions=":3,a:2-") == [("a", 2), ("a", 3), ("ab", 3)]
    assert len(chosen()) == 8
    for wrong in ({"topic": "["}, {"partitions": "x"}, {"topic_partitions": "a:b"}):
        with pytest.raises(CommandFailed):
            chosen(**wrong)
    assert (offsets.time_of("earliest"), offsets.time_of("17")) == (-2, 17)
    with pytest.raises(CommandFailed, match="milliseconds or one of latest"):
        offsets.time_of("soon")


def written(tmp_path: Path, content: Any) -> str:
    path = tmp_path / "file.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_reassignment_files_round_trip(tmp_path: Path):
    wanted = {("t", 1): [3, 1], ("t", 0): [2]}
    assert reassign.read_assignment(written(tmp_path, reassign.document(wanted))) == wanted


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "invalid JSON"),
        ([], 'array "partitions"'),
        ({"partitions": []}, "is empty"),
        ({"partitions": [1]}, "of objects"),
        ({"partitions": [{"partition": 0, "replicas": [1]}]}, '"topic" must be a name'),
        ({"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}, "of at least 0"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}, "different broker"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}, "different broker"),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]},
            'only be "any"',
        ),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2},
            "duplicate partition",
        ),
    ],
)
def test_bad_reassignment_file_is_refused_with_its_entry(tmp_path: Path, content: Any, named: str):
    with pytest.raises(CommandFailed, match=named):
        reassign.read_assignment(written(tmp_path, content))


def test_reassign_proposes_as_many_replicas_on_the_given_brokers():
    current = {("t", 0): [1, 2], ("t", 1): [2, 1], ("t", 2): [1, 2]}
    assert reassign.spread(current, [4, 5, 6]) == {
        ("t", 0): [4, 5],
        ("t", 1): [5, 6],
        ("t", 2): [6, 4],
    }
    with pytest.raises(CommandFailed, match="more than the 1 brokers"):
        reassign.spread(current, [4])


def test_reassign_reports_states_in_kafkas_words():
    key, moving = ("t", 0), Moving("t", 0, [1, 2], [2], [])
    assert reassign.status(key, [2], [1, 2], moving).endswith("t-0 is still in progress.")
    assert reassign.status(key, [2], [2], None).endswith("t-0 is completed.")
    assert "replica set is 1 rather than 2" in reassign.status(key, [2], [1], None)


def test_throttle_of_a_reassignment_is_refused():
    arguments = ["--bootstrap-server", "x:1", "--list", "--throttle", "5"]
    with pytest.raises(CommandFailed, match="--throttle is not supported"):
        reassign.main("kafka-reassign-partitions", arguments)


def test_delete_records_reads_offsets(tmp_path: Path):
    entries = [{"topic": "t", "partition": 0, "offset": -1}, {"topic": "t", "partition": 1}]
    path = written(tmp_path, {"partitions": entries[:1], "version": 1})
    assert delete_records.read_offsets(path) == {("t", 0): -1}
    with pytest.raises(CommandFailed, match='"offset" must be an integer of at least -1'):
        delete_records.read_offsets(written(tmp_path, {"partitions": entries}))


@pytest.mark.parametrize(
    ("options", "ours"),
    [
        ([], ["--batches"]),
        (["--print-data-log"], []),
        (["--cluster-metadata-decoder"], ["--decode", "metadata"]),
        (["--offsets-decoder", "--print-data-log"], ["--decode", "offsets"]),
    ],
)
def test_dump_log_becomes_our_command(
    options: list[str], ours: list[str], monkeypatch: pytest.MonkeyPatch
):
    ran: list[list[str]] = []
    monkeypatch.setattr("kraftbox.cli.main.main", lambda arguments: ran.append(arguments) or 0)
    assert dump_log.main("kafka-dump-log", ["--files", "/a,/b", *options]) == 0
    assert ran == [["dump-log", "/a", "/b", *ours]]


def test_features_are_described_as_kafka_does():
    reply = ApiVersionsResponse(
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(
                name="metadata.version", min_version=7, max_version=30
            )
        ],
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name="metadata.version", max_version_level=30)
        ],
        finalized_features_epoch=5,
    )
    (line,) = features.described(reply)
    name, low, high, level, epoch = line.replace(": ", ":").split()
    assert (name, epoch) == ("Feature:metadata.version", "Epoch:5")
    assert (low, high) == ("SupportedMinVersion:3.3-IV3", "SupportedMaxVersion:4.3-IV0")
    assert level == "FinalizedVersionLevel:4.3-IV0"


def changed(command: str, **given: Any) -> dict[str, int]:
    nothing = {"feature": None, "release_version": None, "metadata": None}
    return features.levels(argparse.Namespace(command=command, **{**nothing, **given}))


def test_features_to_change_are_named_by_level_or_release():
    assert changed("upgrade", feature=["a=2", "b=0"]) == {"a": 2, "b": 0}
    assert changed("disable", feature=["a"]) == {"a": 0}
    assert changed("downgrade", metadata="3.9-IV0") == {"metadata.version": 21}
    assert changed("upgrade", release_version="4.3")["eligible.leader.replicas.version"] == 1
    for wrong in ({}, {"feature": ["a"]}, {"feature": ["a=x"]}, {"metadata": "0.1"}):
        with pytest.raises(CommandFailed):
            changed("upgrade", **wrong)


def test_log_directories_are_listed_as_kafka_does():
    partition = DescribeLogDirsResponse.DescribeLogDirsPartition(
        partition_index=1, partition_size=7, offset_lag=2
    )
    topics = [
        DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=[partition])
        for name in ("t", "u")
    ]
    found = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir="/d", topics=topics)
    document = log_dirs.document({3: DescribeLogDirsResponse(results=[found])}, {"t"})
    replica = {"partition": "t-1", "size": 7, "offsetLag": 2, "isFuture": False}
    directory = {"partitions": [replica], "error": None, "logDir": "/d"}
    assert document == {"brokers": [{"broker": 3, "logDirs": [directory]}], "version": 1}


def test_endpoints_of_brokers_and_controllers():
    node = DescribeClusterResponse.DescribeClusterBroker(
        broker_id=3, host="h", port=1, rack=None, is_fenced=True
    )
    reply = DescribeClusterResponse(brokers=[node])
    brokers = cluster.endpoints(reply, cluster.BROKERS)
    assert brokers[1] == (3, "h", 1, "null", "fenced", "broker")
    assert cluster.endpoints(reply, cluster.CONTROLLERS)[1] == (3, "h", 1, "null", "controller")


@pytest.mark.parametrize("kind", [cluster.BROKERS, cluster.CONTROLLERS])
def test_api_versions_of_a_cluster_prints_each_of_its_nodes(
    kind: int, monkeypatch: pytest.MonkeyPatch
):
    """Kafka 4.4: kafka-cluster api-versions prints the nodes of the listener that was given."""
    shown: list[tuple[Any, ...]] = []

    class Client:
        async def request_any(self, message: DescribeClusterRequest) -> DescribeClusterResponse:
            assert message.endpoint_type == kind
            nodes = [
                DescribeClusterResponse.DescribeClusterBroker(broker_id=n, host="h", port=90 + n)
                for n in (2, 1)
            ]
            return DescribeClusterResponse(brokers=nodes)

    async def show_node(*node: Any, fenced: bool) -> None:
        shown.append((*node, fenced))

    monkeypatch.setattr(cluster, "show_node", show_node)
    monkeypatch.setattr(cluster, "run", lambda _, work: asyncio.run(work(Client())))
    way = "--bootstrap-server" if kind == cluster.BROKERS else "--bootstrap-controller"
    assert cluster.main("kafka-cluster", ["api-versions", way, "127.0.0.1:1"]) == 0
    assert shown == [("h", 91, 1, None, False), ("h", 92, 2, None, False)]
