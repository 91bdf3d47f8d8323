"""Whole directories handed over with data, metadata and groups, from Kraftbox to Kafka and back.

Both start with the same server.properties, one after the other, in the same directory.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from testkit.audits import elections_of, kinds_of
from testkit.kafka.in_place import LEVELS
from testkit.kafka.jars import ORACLE, PREVIOUS, kafka_libs
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.kafka.tools import KafkaTools
from testkit.kafka.twins import (
    CLUSTER_ID,
    COMMON_FEATURES,
    NODE_ID,
    NOT_BUILT,
    KraftboxServer,
    NodeDirectory,
    kafka_at,
)
from testkit.processes.nodes import NodeDidNotStart
from testkit.processes.waiting import until

pytestmark = pytest.mark.interop

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH = 200
TIMEOUT_S = 30
FEATURES = "org.apache.kafka.tools.FeatureCommand"

LOSSY = {"last-known-leader", "unclean"}

Offsets: TypeAlias = dict[tuple[str, int], int]


@pytest.fixture(autouse=True)
def _need_kafka() -> None:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")


@pytest.fixture
def place(tmp_path: Path) -> NodeDirectory:
    return NodeDirectory(tmp_path / "node", {"log.segment.bytes": "1048576", "broker.rack": "r"})


@contextlib.contextmanager
def running(node: KraftboxServer | ApacheKafkaNode) -> Iterator[None]:
    try:
        node.start()
        yield
    finally:
        node.stop()


class World:
    """A client's work at a place, and checks that a node there still has it."""

    def __init__(self, place: NodeDirectory) -> None:
        self.client: dict[str, Any] = {"bootstrap.servers": place.bootstrap, "log_level": 2}
        self.values: dict[tuple[str, int], list[bytes]] = {}
        self.starts: Offsets = {}
        self.committed: dict[str, Offsets] = {}
        self.left: dict[str, int] = {}
        self.deleted: set[str] = set()

    # --- doing --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Create topics with configurations, one of them with partitions added later."""
        admin = AdminClient(self.client)
        topics = [
            NewTopic("plain", 3, 1, config={"retention.ms": "86400000"}),
            NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
            NewTopic("gone", 1, 1),
        ]
        for future in admin.create_topics(topics).values():
            future.result(TIMEOUT_S)
        for future in admin.delete_topics(["gone"]).values():
            future.result(TIMEOUT_S)
        entry = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(NODE_ID), incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT_S)

    def produce(self, who: str) -> None:
        """Produce with every codec, idempotently, to every partition."""
        for codec in CODECS:
            producer = Producer(
                {**self.client, "enable.idempotence": True, "compression.type": codec}
            )
            for number in range(EACH):
                topic, partition = ("compacted", 0) if number % 4 == 3 else ("plain", number % 4)
                value = f"{who} {codec} {number} ".encode() + b"." * 500
                producer.produce(
                    topic, value, key=b"k%d" % len(self._of(topic, partition)), partition=partition
                )
                self._of(topic, partition).append(value)
                for group in self.left:
                    self.left[group] += 1
            assert producer.flush(TIMEOUT_S) == 0

    def commit(self, group: str, share: float) -> None:
        """Read everything as a new group and commit a share of it."""
        consumer = self._consumer(group)
        consumer.subscribe(["plain", "compacted"])
        seen: dict[tuple[str, int], list[int]] = {key: [] for key in self.values}
        while any(len(seen[key]) < len(values) for key, values in self.values.items()):
            for message in self._consume(consumer):
                seen[message.topic(), message.partition()].append(message.offset())
        done = {key: int(len(offsets) * share) for key, offsets in seen.items()}
        self.committed[group] = {key: seen[key][count - 1] + 1 for key, count in done.items()}
        self.left[group] = sum(len(seen[key]) - count for key, count in done.items())
        consumer.commit(
            offsets=[TopicPartition(*key, offset) for key, offset in self.committed[group].items()],
            asynchronous=False,
        )
        consumer.close()

    def delete_records(self, count: int) -> None:
        """Delete the first records of one partition."""
        key = ("plain", 0)
        admin = AdminClient(self.client)
        for future in admin.delete_records([TopicPartition(*key, count)]).values():
            future.result(TIMEOUT_S)
        self.starts[key] = count
        del self.values[key][:count]

    def _of(self, topic: str, partition: int) -> list[bytes]:
        return self.values.setdefault((topic, partition), [])

    # --- checking -----------------------------------------------------------------------------

    def check(self) -> None:
        """Check topics, configurations, records and offsets; groups continue from their offsets."""
        admin = AdminClient(self.client)
        topics = admin.list_topics(timeout=TIMEOUT_S).topics
        assert len(topics["plain"].partitions) == 3
        assert "gone" not in topics
        assert self._config(admin, ResourceType.TOPIC, "plain")["retention.ms"] == "86400000"
        assert self._config(admin, ResourceType.TOPIC, "compacted")["cleanup.policy"] == "compact"
        own = self._config(admin, ResourceType.BROKER, str(NODE_ID))
        assert own["log.cleaner.threads"] == "2"
        for key, values in self.values.items():
            assert self._read(key, len(values)) == values
        for group, offsets in self.committed.items():
            assert self._committed(admin, group) == offsets
        groups = admin.list_consumer_groups().result(TIMEOUT_S)
        assert {each.group_id for each in groups.valid} >= set(self.committed)

    def go_on(self, group: str) -> None:
        """Check that a member of the group gets exactly the records that were not committed yet."""
        left = self.left[group]
        consumer = self._consumer(group)
        consumer.subscribe(["plain", "compacted"])
        found = 0
        while found < left:
            found += len(self._consume(consumer))
        assert found == left
        consumer.close()

    def _config(self, admin: AdminClient, kind: ResourceType, name: str) -> dict[str, str]:
        (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
        return {key: entry.value for key, entry in future.result(TIMEOUT_S).items()}

    def _committed(self, admin: AdminClient, group: str) -> Offsets:
        """Return the committed offsets once the coordinator has loaded them: the client does not
        retry."""

        def ask() -> Offsets | None:
            wanted = [ConsumerGroupTopicPartitions(group)]
            (future,) = admin.list_consumer_group_offsets(wanted).values()
            try:
                found = future.result(TIMEOUT_S).topic_partitions
            except KafkaException as error:
                if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
                return None
            return {(each.topic, each.partition): each.offset for each in found}

        return until("committed offsets", ask)

    def _read(self, key: tuple[str, int], count: int) -> list[bytes]:
        consumer = self._consumer("reader")
        consumer.assign([TopicPartition(*key, self.starts.get(key, 0))])
        found: list[bytes] = []
        while len(found) < count:
            found += [message.value() for message in self._consume(consumer)]
        consumer.close()
        return found

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **self.client,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )

    def _consume(self, consumer: Consumer) -> list[Any]:
        first = consumer.poll(TIMEOUT_S)
        assert first is not None, "nothing more came"
        messages = [first, *consumer.consume(500, timeout=0)]
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        return messages


def format_ours(place: NodeDirectory, version: str) -> None:
    """Format with levels that this release of Kafka supports; Kraftbox starts first, and writes
    them into the log, where 4.3.1 finds them."""
    command = [sys.executable, "-m", "kraftbox", "storage", "format", "--standalone"]
    command += ["--cluster-id", CLUSTER_ID, "--config", str(place.write_config())]
    for level in LEVELS[version]:
        command += ["--feature", level]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize(("end", "version"), [("stop", PREVIOUS), ("kill", ORACLE)])
def test_kafka_starts_on_what_we_wrote_and_we_go_on_after_it(
    place: NodeDirectory, end: str, version: str
) -> None:
    format_ours(place, version)
    world = World(place)
    ours, kafka = KraftboxServer(place), kafka_at(place, version)
    with running(ours):
        world.begin()
        world.produce("kraftbox")
        world.delete_records(17)
        world.commit("ours", 0.5)
        getattr(ours, end)()
    with running(kafka):
        world.check()
        world.produce("kafka")
        world.go_on("ours")
        world.commit("theirs", 0.7)
    with running(ours):
        world.check()
        world.go_on("theirs")
    assert elected_as(place) >= {"elr"}
    assert elected_as(place) & LOSSY == (set() if end == "stop" else {"last-known-leader"})


def elected_as(place: NodeDirectory) -> set[str]:
    """Return the kinds of elections in the directory's metadata log."""
    return set(kinds_of(elections_of(place.data / "__cluster_metadata-0")))


@pytest.mark.parametrize("version", [ORACLE, PREVIOUS])
def test_we_start_on_what_kafka_wrote_and_it_goes_on_after_us(
    place: NodeDirectory, version: str
) -> None:
    world = World(place)
    ours, kafka = KraftboxServer(place), kafka_at(place, version)
    kafka.format(CLUSTER_ID, "--standalone", *COMMON_FEATURES)
    with running(kafka):
        world.begin()
        world.produce("kafka")
        world.delete_records(17)
        world.commit("theirs", 0.5)
        transactions(world)
    with running(ours):
        world.check()
        world.produce("kraftbox")
        world.go_on("theirs")
        world.commit("ours", 0.7)
    with running(kafka):
        world.check()
        world.go_on("ours")
    # Each found the other's marker of a clean shutdown.
    assert elected_as(place) >= {"elr"}
    assert not elected_as(place) & LOSSY


def transactions(world: World) -> None:
    """Run a transaction that commits and one that does not; readers get the first alone."""
    for commit in (False, True):
        producer = Producer({**world.client, "transactional.id": "t"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("plain", b"in a transaction %d" % commit, partition=2)
        assert producer.flush(TIMEOUT_S) == 0
        if commit:
            producer.commit_transaction(TIMEOUT_S)
            world.values["plain", 2].append(b"in a transaction 1")
            world.left["theirs"] += 1
        else:
            producer.abort_transaction(TIMEOUT_S)


def test_a_directory_with_features_we_lack_is_refused_until_kafkas_tool_lowers_them(
    place: NodeDirectory, tools: KafkaTools
) -> None:
    place.format(tools)
    world = World(place)
    ours, kafka = KraftboxServer(place), kafka_at(place)
    with running(kafka):
        world.begin()
        world.produce("kafka")
        world.commit("theirs", 0.5)
    before = listing(place.data)
    with pytest.raises(NodeDidNotStart) as refused:
        ours.start()
    for name in NOT_BUILT:
        assert f"{name}.version at level" in str(refused.value)
    assert "kafka-features downgrade" in str(refused.value)
    assert listing(place.data) == before
    with running(kafka):
        done = tools.run(
            FEATURES, "--bootstrap-server", place.bootstrap, "downgrade", *COMMON_FEATURES
        )
        assert done.code == 0, done.text
    with running(ours):
        world.check()
        world.go_on("theirs")


def listing(directory: Path) -> dict[str, bytes]:
    """Return every file of the metadata log with its content, which a refusal must not change."""
    folder = directory / "__cluster_metadata-0"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
