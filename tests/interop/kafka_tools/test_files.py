"""Kafka's tools that read or write directories."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testkit.kafka.tool_table import Trial
from testkit.kafka.tools import KafkaTools
from testkit.kafka.twins import CLUSTER_ID, COMMON_FEATURES, KraftboxServer, NodeDirectory
from tests.interop.kafka_tools.toolbox import SHELL, Admin, Node, T, tool

pytestmark = pytest.mark.interop


@tool("kafka.tools.StorageTool", "kafka-storage")
def test_storage(trial: Trial, node: Node, tmp_path: Path) -> None:
    config = ("-c", str(node.place.write_config()))
    printed = trial.works("info of our directory", "info", *config)
    assert f"cluster.id={CLUSTER_ID}" in printed
    again = trial.works(
        "format what is formatted", "format", "-t", CLUSTER_ID, *config, "--ignore-formatted",
        "--standalone",
    )  # fmt: skip
    assert "already formatted" in again
    other = NodeDirectory(tmp_path / "other", {})
    given = ("-t", CLUSTER_ID, "-c", str(other.write_config()), "--standalone", *COMMON_FEATURES)
    trial.works("format, and a node starts there", "format", *given)
    server = KraftboxServer(other).start()
    assert server.stop() == 0
    assert len(trial.works("random-uuid", "random-uuid").strip()) == 22
    assert "metadata.version=33" in trial.works("version-mapping", "version-mapping")
    trial.works("feature-dependencies", "feature-dependencies", "--feature", "group.version=1")


@tool(f"{T}DumpLogSegments", "kafka-dump-log")
def test_dump_log(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("dump-log", records=3)
    long = admin.topic("dump-indexes", config="segment.bytes=1048576")
    admin.load(long, records=1_500, size=1_000)
    admin.consume(topic, "dump-group", 3)
    data = node.place.data

    def dump(what: str, directory: str, *options: str, suffix: str = ".log") -> str:
        file = data / directory / f"{0:020}{suffix}"
        return trial.works(what, "--files", str(file), *options)

    records = dump("records", f"{topic}-0", "--print-data-log")
    assert re.findall(r"key: (\S+) payload: (\S+)", records) == [
        (f"v{n}", f"v{n}") for n in range(3)
    ]
    for suffix in (".index", ".timeindex"):
        dump("indexes", f"{long}-0", suffix=suffix)
        dump("indexes", f"{long}-0", "--index-sanity-check", suffix=suffix)
    groups = "".join(
        dump("group records", f"__consumer_offsets-{n}", "--offsets-decoder") for n in range(2)
    )
    assert '"group":"dump-group","topic":"dump-log","partition":0' in groups
    metadata = dump("metadata records", "__cluster_metadata-0", "--cluster-metadata-decoder")
    assert '"type":"TOPIC_RECORD","version":0,"data":{"name":"dump-log"' in metadata


@tool(SHELL, "kafka-metadata-shell")
def test_metadata_shell(shell_trial: Trial, tools: KafkaTools, tmp_path: Path) -> None:
    """The shell of 4.3.1 reads a log of level 30, but not one that a process uses."""
    trial, place = shell_trial, NodeDirectory(tmp_path / "node", {})
    place.format(tools, "--release-version", "4.3", *COMMON_FEATURES)
    server = KraftboxServer(place).start()
    busy = place.data / "__cluster_metadata-0" / f"{0:020}.log"
    log = ("--snapshot", str(busy))
    try:
        Admin(tools, Node(place, {})).topic("metadata-shell", partitions=3)
        locked = trial.run(*log, "ls", "/")
    finally:
        assert server.stop() == 0
    assert "Please ensure that no broker or controller process is using this" in locked.text
    where = "/image/topics/byName/metadata-shell"
    for wanted, *command in (
        ("metadata-shell", "ls", "/image/topics/byName"),
        ("2:", "tree", where),
        ("leader", "cat", f"{where}/0"),
    ):
        # The shell may list the file before its own reader has read all of it.
        for _ in range(10):
            printed = trial.works(command[0], *log, *command)
            if wanted in printed:
                break
        assert wanted in printed, printed
