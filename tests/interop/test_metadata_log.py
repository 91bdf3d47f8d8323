"""Metadata directories: Apache Kafka reads ours, and we read, continue and hand back its own."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from metalog.format import FormatRequest, format_directories
from metalog.image.features import FEATURES, METADATA_VERSION, record_version
from metalog.image.replay import Replayer, replay_all
from metalog.image.snapshot import image_from_records, image_to_records
from metalog.image.values import EMPTY_IMAGE, MetadataImage, VersionRange
from metalog.quorum.batches import read_batches, read_control_batches
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.voters import ReplicaKey, VoterEndpoint, VoterSet
from metalog.quorum.log import DIRECTORY_NAME, MetadataLog, MetadataLogConfig
from protocol.batch.header import iter_batches
from protocol.control import SnapshotHeaderRecord
from protocol.ids import DirectoryId
from protocol.json_form import to_json
from protocol.metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from runtime.clock import SystemClock
from storage.files import RealFiles
from storage.log.directory import check_meta, read_meta
from testkit.kafka.jars import kafka_libs
from testkit.kafka.nodes import ApacheKafkaNode, run_kafka_tool
from testkit.memory.quorum_nodes import RunningQuorum, make_config
from testkit.processes.ports import free_ports
from testkit.records.metadata_records import valid_records

pytestmark = pytest.mark.interop

HOST = "127.0.0.1"
WAIT_S = 60
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
ALL_FEATURES = {f.name: VersionRange(0, f.max_level) for f in FEATURES} | {
    METADATA_VERSION: VersionRange(7, 33)
}
META = "meta.properties"
DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"
FIRST_SNAPSHOT = f"{DIRECTORY_NAME}/00000000000000000000-0000000000.checkpoint"


@pytest.fixture(autouse=True)
def _need_kafka() -> None:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")


def dump(path: Path) -> str:
    done = run_kafka_tool(DUMP, "--cluster-metadata-decoder", "--files", str(path))
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout and "Could not" not in done.stdout, done.stdout
    return done.stdout


def payloads(path: Path) -> list[dict[str, Any]]:
    """Return the metadata records that Kafka's tool prints for a file."""
    found = re.findall(r"payload: (.*)$", dump(path), re.MULTILINE)
    return [json.loads(text) for text in found]


PRIVATE_TAGS = ("electionKind", "electionCause", "localLogs")
"""Tags that Kafka skips."""


def as_kafka_shows(record: Any, version: int) -> dict[str, Any]:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__).upper()
    data = to_json(record, version)
    for private in PRIVATE_TAGS:
        data.pop(private, None)
    return {"type": name, "version": version, "data": data}


def rich_records() -> list[Any]:
    """Return every kind of record, in an order that replays."""
    rng = random.Random(11)
    drawn = [(rng.randrange(64), *(rng.randrange(4) for _ in range(3))) for _ in range(400)]
    return valid_records(drawn, level=30)


async def test_kafkas_tool_shows_what_our_log_and_snapshots_hold(tmp_path: Path) -> None:
    records = rich_records()
    async with RunningQuorum(RealFiles(), str(tmp_path)) as q:
        for at in range(0, len(records), 7):
            await q.commit(*records[at : at + 7])
        image = q.loader.image
        snapshot_id = await q.node.create_snapshot(image)
        assert snapshot_id is not None
        checkpoint = q.node.log.snapshots.path(snapshot_id)
    folder = tmp_path / DIRECTORY_NAME
    assert payloads(folder / f"{0:020d}.log") == [
        as_kafka_shows(record, record_version(type(record).__name__, 30)) for record in records
    ]
    assert payloads(Path(checkpoint)) == [
        as_kafka_shows(record, version) for record, version in image_to_records(image)
    ]


async def test_kafkas_tool_reads_past_our_private_tags(tmp_path: Path) -> None:
    """Tags 10000 and 10001 of the record contain how and why a leader was elected."""
    topic_id = bytes(15) + b"\x01"
    topic = TopicRecord(name="t", topic_id=topic_id)
    created = PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[topic_id] * 2,
        election_cause="topic-created",
    )
    changed = PartitionChangeRecord(
        partition_id=0,
        topic_id=topic_id,
        isr=[2],
        leader=2,
        election_kind=1,
        election_cause="broker-fenced",
    )
    async with RunningQuorum(RealFiles(), str(tmp_path)) as q:
        await q.commit(topic, created, changed)
        partition = q.loader.image.topics.by_name["t"].partitions[0]
        end_offset, log = q.node.log.end_offset, q.node.log
        read = [r for b in read_batches(log.read(0, 1 << 20)) for r in b.records]
    assert read[-3:] == [topic, created, changed] and end_offset >= 3
    assert (partition.leader, partition.unknown_tags) == (2, ())
    without = [record.replace(election_kind=0, election_cause="") for record in (created, changed)]
    folder = tmp_path / DIRECTORY_NAME
    assert payloads(folder / f"{0:020d}.log")[-2:] == [
        as_kafka_shows(record, record_version(type(record).__name__, 30)) for record in without
    ]


def combined(directory: Path, **more: str) -> ApacheKafkaNode:
    """Start a Kafka node of both roles that writes snapshots often."""
    client, controller = free_ports(2)
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A virtual machine that pauses for seconds must not be fenced by itself.
        "broker.session.timeout.ms": "60000",
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        **more,
    }
    return ApacheKafkaNode(directory, settings, heap="256m")


def admin(node: ApacheKafkaNode) -> AdminClient:
    servers = node.settings["advertised.listeners"].removeprefix("PLAINTEXT://")
    return AdminClient({"bootstrap.servers": servers})


def use_cluster(node: ApacheKafkaNode) -> None:
    """Create and delete topics, partitions and configs in Kafka's own log."""
    client = admin(node)
    for future in client.create_topics(
        [NewTopic(f"topic-{n}", num_partitions=n + 1, replication_factor=1) for n in range(8)],
        operation_timeout=WAIT_S,
    ).values():
        future.result(WAIT_S)
    entry = ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "topic-3", incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)
    for future in client.delete_topics(["topic-1", "topic-2"], operation_timeout=WAIT_S).values():
        future.result(WAIT_S)


@pytest.fixture(scope="module")
def kafkas_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafkaNode]:
    """Return a stopped Kafka node whose directory has some content."""
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    node = combined(tmp_path_factory.mktemp("kafka"))
    node.format(CLUSTER_ID, "--standalone")
    node.start()
    try:
        use_cluster(node)
    finally:
        node.stop()
    yield node


def replayed(log: MetadataLog, end_offset: int) -> MetadataImage:
    """Return the image of the log from offset 0 up to `end_offset`."""
    replayer = Replayer()
    offset = 0
    while offset < end_offset:
        for batch in read_batches(log.read(offset, 1 << 20)):
            offset = batch.last_offset + 1
            if offset <= end_offset and batch.records:
                replayer.apply_batch(
                    batch.records,
                    base_offset=batch.base_offset,
                    epoch=batch.epoch,
                    timestamp_ms=batch.append_timestamp_ms,
                )
    return replayer.image


def test_our_replay_of_kafkas_log_is_kafkas_snapshot(
    kafkas_directory: ApacheKafkaNode, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(kafkas_directory.directory / "data", data)
    log = MetadataLog.open(RealFiles(), str(data), SystemClock(), MetadataLogConfig(), VoterSet())
    snapshots = [s for s in log.snapshots.ids if s.offset > 0]
    assert len(snapshots) >= 2 and log.start_offset == 0
    for snapshot_id in snapshots:
        snapshot = log.snapshots.open(snapshot_id)
        loaded = image_from_records(snapshot.records())
        assert replayed(log, snapshot_id.offset).same_cluster(loaded)
        assert snapshot.voters == log.voters
    assert set(replayed(log, log.end_offset).topics.by_name) == {
        f"topic-{n}" for n in range(8) if n not in (1, 2)
    }
    assert log.kraft_version == 1 and log.voters.ids == (1,)
    state = log.state_file.read()
    assert state is not None and state.leader_id == 1 and state.epoch == log.last_epoch
    log.close()


def quorum_config(node: ApacheKafkaNode, data: Path) -> QuorumConfig:
    meta = check_meta(RealFiles(), str(data), node_id=1, cluster_id=CLUSTER_ID)
    assert meta.directory_id is not None
    return make_config(
        str(data), node=ReplicaKey(1, meta.directory_id), cluster_id=CLUSTER_ID, voters=VoterSet()
    )


async def test_we_go_on_where_kafka_stopped_and_kafka_goes_on_after_us(
    kafkas_directory: ApacheKafkaNode, tmp_path: Path
) -> None:
    ports = kafkas_directory.settings
    node = combined(
        tmp_path,
        listeners=ports["listeners"],
        **{
            "advertised.listeners": ports["advertised.listeners"],
            "controller.quorum.bootstrap.servers": ports["controller.quorum.bootstrap.servers"],
        },
    )
    node.write_config()
    data = tmp_path / "data"
    shutil.copytree(kafkas_directory.directory / "data", data)
    config = quorum_config(node, data)
    topic_id = b"kraftbox topic i"
    async with RunningQuorum(RealFiles(), config=config) as q:
        await q.commit(
            TopicRecord(name="ours", topic_id=topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[DirectoryId(config.node.directory_id)],
            ),
        )
        assert "topic-7" in q.loader.image.topics.by_name
        assert q.node.kraft_version == 1
        assert await q.node.create_snapshot(q.loader.image) is not None
    node.start()
    try:
        listed = admin(node).list_topics(timeout=WAIT_S).topics
        assert {"ours", "topic-7"} <= set(listed)
        assert listed["ours"].partitions[0].leader == 1
    finally:
        node.stop()
    log = MetadataLog.open(RealFiles(), str(data), SystemClock(), MetadataLogConfig(), VoterSet())
    assert "ours" in replayed(log, log.end_offset).topics.by_name
    log.close()


def format_with_ours(node: ApacheKafkaNode, **changes: Any) -> None:
    data = str(node.directory / "data")
    listener = node.settings["listeners"].rpartition("CONTROLLER://")[2]
    host, _, port = listener.rpartition(":")
    request = FormatRequest(
        node_id=1,
        cluster_id=CLUSTER_ID,
        log_dirs=[data],
        metadata_dir=data,
        is_controller=True,
        endpoints=(("CONTROLLER", VoterEndpoint(host, int(port))),),
    )
    format_directories(
        request._replace(**changes),
        files=RealFiles(),
        clock=SystemClock(),
        rng=random.Random(),
        supported=ALL_FEATURES,
    )


def without_chance(text: str, node: ApacheKafkaNode) -> str:
    """Return a dump without the parts that differ from run to run."""
    text = text.replace(str(node.directory), "")
    text = re.sub(r"crc: \d+|CreateTime: \d+|lastContainedLogTimestamp\":\d+", "", text)
    return re.sub(rf"voterDirectoryId\":\"[^\"]+\"|{re.escape(HOST)}|port\":\d+", "", text)


def without_ids(path: Path, directory_id: bytes) -> bytes:
    """Return a snapshot's bytes without CRCs, timestamps and this directory id."""
    data = path.read_bytes()
    header = next(read_control_batches(data)).control[0]
    assert isinstance(header, SnapshotHeaderRecord)
    contained = header.last_contained_log_timestamp.to_bytes(8, "big")
    changed = bytearray(data.replace(directory_id, bytes(16)).replace(contained, bytes(8)))
    for _, at in iter_batches(changed):
        for first, end in ((17, 21), (27, 43)):
            changed[at + first : at + end] = bytes(end - first)
    return bytes(changed)


WAYS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "static": ([], {"has_static_voters": True}),
    "standalone": (["--standalone"], {"standalone": True}),
    "initial": (
        ["--initial-controllers", f"1@{HOST}:9093:{DIRECTORY}"],
        {"initial_controllers": f"1@{HOST}:9093:{DIRECTORY}"},
    ),
    "none": (["--no-initial-controllers"], {"no_initial_controllers": True}),
    "broker": ([], {"is_controller": False}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("release", ["4.4", "3.9"])
def test_formatting_writes_the_files_of_the_oracle(tmp_path: Path, release: str, way: str) -> None:
    """KIP-1170: equal options give equal first snapshots, apart from timestamps and ids."""
    arguments, options = WAYS[way]
    more: dict[str, str] = {}
    if way == "static":
        more = {"controller.quorum.voters": f"1@{HOST}:9093"}
    elif way == "broker":
        more = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:9092"}
    theirs, ours = (combined(tmp_path / name, **more) for name in ("theirs", "ours"))
    if way == "static":
        del theirs.settings["controller.quorum.bootstrap.servers"]
    # Both write the same endpoints.
    ours.settings = {**theirs.settings, "log.dirs": str(ours.directory / "data")}
    theirs.format(CLUSTER_ID, *arguments, "--release-version", release)
    ours.directory.mkdir()
    format_with_ours(ours, release_version=release, **options)
    listings, contents, properties = [], [], []
    for node in (theirs, ours):
        data = node.directory / "data"
        files = [path for path in data.rglob("*") if path.is_file()]
        listings.append(
            sorted((str(path.relative_to(data)), path.stat().st_mode & 0o777) for path in files)
        )
        meta = read_meta(RealFiles(), str(data))
        assert meta is not None and meta.directory_id is not None
        contents += [
            without_ids(path, meta.directory_id) for path in files if path.suffix == ".checkpoint"
        ]
        properties.append(
            {
                line.partition("=")[0]
                for line in (data / "meta.properties").read_text().splitlines()
                if not line.startswith("#")
            }
        )
    checkpoints = [[entry for entry in found if META not in entry[0]] for found in listings]
    assert checkpoints[0] == checkpoints[1]
    assert checkpoints[0] == ([] if way == "broker" else [(FIRST_SNAPSHOT, 0o400)])
    assert len(set(contents)) == (0 if way == "broker" else 1), contents
    assert properties[0] == properties[1]


def test_kafka_starts_on_a_directory_that_we_formatted(tmp_path: Path) -> None:
    """KIP-1170: Kafka 4.4.0 begins its log with the records of our first snapshot."""
    node = combined(tmp_path)
    node.write_config()
    format_with_ours(node, standalone=True)
    node.start()
    try:
        use_cluster(node)
        assert "topic-7" in admin(node).list_topics(timeout=WAIT_S).topics
    finally:
        node.stop()


def test_replay_of_rich_records_is_not_empty() -> None:
    """The comparison above needs something in every part of the image."""
    image = replay_all(EMPTY_IMAGE, rich_records())
    assert all(
        (
            image.features,
            image.cluster.brokers,
            image.cluster.controllers,
            image.topics.by_id,
            image.configs,
            image.client_quotas,
            image.acls,
            image.scram,
            image.delegation_tokens,
        )
    )
