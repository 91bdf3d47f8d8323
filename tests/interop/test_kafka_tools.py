"""Every tool of Kafka 4.3.1 against a node of ours: it works, or says clearly what is not built.

What each test finds is a row of docs/tools.md (`tests/support/tool_table.py`). The classes come
from the jar, so that none can be forgotten.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer

from tests.kafka_jars import kafka_libs
from tests.support.kafka_tools import KafkaTools, ToolRun
from tests.support.nodes import kafka_class_path
from tests.support.tool_table import Trial, check_row, rows
from tests.support.twins import CLUSTER_ID, COMMON_FEATURES, KraftboxServer, Place

pytestmark = pytest.mark.interop

T = "org.apache.kafka.tools."
TOOLS_JAR = "kafka-tools-4.3.1.jar"
MORE_CLASSES = {
    "kafka.admin.ConfigCommand",
    "kafka.tools.StorageTool",
    "org.apache.kafka.shell.MetadataShell",
}
"""Tools that are in other jars, beside things that are no tools."""

NO_SHARE_GROUPS = "The node does not support SHARE_GROUP_DESCRIBE"
NO_STREAMS_GROUPS = "The node does not support STREAMS_GROUP_DESCRIBE"
NO_SHARE_CONSUMERS = "The cluster does not support the share group protocol"
NO_AUTHORIZER = "SecurityDisabledException: No authorizer is configured"


class ToolName(NamedTuple):
    name: str
    script: str | None


TOOLS: dict[str, ToolName] = {}
"""By the name of the test."""


def tool(name: str, script: str | None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The class that a test is about, and the script in Kafka's bin folder that starts it."""

    def register(test: Callable[..., None]) -> Callable[..., None]:
        TOOLS[test.__name__] = ToolName(name, script)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            test(**fixtures)
            check_row("tools", fixtures["trial"].row())

        return run

    return register


class Node(NamedTuple):
    """A running node, with the runs that take long because they wait."""

    place: Place
    slow: dict[str, SlowRun]

    @property
    def at(self) -> tuple[str, str]:
        return ("--bootstrap-server", self.place.bootstrap)

    @property
    def controller(self) -> tuple[str, str]:
        return ("--bootstrap-controller", self.place.controller)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    with KafkaTools(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture(scope="module")
def node(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    place = Place(folder / "node", {"broker.rack": "r1"})
    place.format(tools, *COMMON_FEATURES)
    server = KraftboxServer(place).start()
    slow = {name: SlowRun(folder / name, *run) for name, run in slow_runs(place)}
    try:
        yield Node(place, slow)
    finally:
        for run in slow.values():
            run.end()
        assert server.stop() == 0


def slow_runs(place: Place) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What waits for seconds without doing much: started first, looked at last."""
    compaction = (f"{T}LogCompactionTester", "--bootstrap-server", place.bootstrap)
    yield "compaction", (*compaction, "--messages", "1000", "--duplicates", "10", "--sleep", "1")
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{place.port}/jmxrmi"
    yield "jmx", (f"{T}JmxTool", "--jmx-url", url, "--one-time")


class SlowRun:
    """A tool in a JVM of its own, beside everything else."""

    def __init__(self, folder: Path, *command: str) -> None:
        folder.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            self._process = subprocess.Popen(
                [*java, "-cp", kafka_class_path(), *command], stdout=out, stderr=err
            )

    def result(self) -> ToolRun:
        code = self._process.wait(timeout=120)
        return ToolRun(code, self._out.read_text(), self._err.read_text())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def trial(request: pytest.FixtureRequest, tools: KafkaTools) -> Trial:
    return Trial(tools, *TOOLS[request.node.originalname])


@pytest.fixture
def admin(tools: KafkaTools, node: Node) -> Admin:
    return Admin(tools, node)


class Admin:
    """What a test needs done that is not what it is about."""

    def __init__(self, tools: KafkaTools, node: Node) -> None:
        self._tools = tools
        self._node = node

    def _run(self, name: str, *arguments: str, stdin: str = "") -> str:
        done = self._tools.run(T + name, *self._node.at, *arguments, stdin=stdin)
        assert done.code == 0, done.text
        return done.out

    def topic(
        self, name: str, partitions: int = 1, records: int = 0, config: str | None = None
    ) -> str:
        """A topic with records `v0`, `v1`, ...; the keys are the values."""
        given = ("--config", config) if config else ()
        asked = ("--create", "--topic", name, "--partitions", str(partitions))
        self._run("TopicCommand", *asked, *given)
        if records:
            self.produce(name, *(f"v{number}" for number in range(records)))
        return name

    def produce(self, topic: str, *values: str) -> None:
        lines = "".join(f"{value}\t{value}\n" for value in values)
        keys = ("--reader-property", "parse.key=true")
        self._run("ConsoleProducer", "--topic", topic, *keys, stdin=lines)

    def load(self, topic: str, *, records: int, size: int) -> None:
        """Many records in batches of 16 KB."""
        load = ("--num-records", str(records), "--record-size", str(size), "--throughput", "-1")
        self._run("ProducerPerformance", "--topic", topic, *load)

    def consume(self, topic: str, group: str, count: int) -> list[str]:
        """The values, in order of arrival; the group's offsets are committed."""
        asked = ("--topic", topic, "--group", group, "--from-beginning")
        return self._run("consumer.ConsoleConsumer", *asked, "--max-messages", str(count)).split()

    def ends(self, topic: str) -> dict[int, int]:
        """Log end offsets by partition."""
        return offsets(self._run("GetOffsetShell", "--topic", topic))

    def starts(self, topic: str) -> dict[int, int]:
        return offsets(self._run("GetOffsetShell", "--topic", topic, "--time", "earliest"))


def offsets(printed: str) -> dict[int, int]:
    """`topic:partition:offset` lines."""
    lines = (line.rsplit(":", 2) for line in printed.split())
    return {int(partition): int(offset) for _, partition, offset in lines}


def table(printed: str) -> list[dict[str, str]]:
    """Rows of a table whose columns have one-word headings."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    heading = lines[0]
    return [dict(zip(heading, line, strict=False)) for line in lines[1:] if len(line) > 2]


# --- none is forgotten ------------------------------------------------------------------------


def test_every_tool_of_the_jar_has_a_test_and_a_row(tools: KafkaTools) -> None:
    libs = kafka_libs()
    assert libs is not None
    found = tools.run("Tools$Mains", str(libs / TOOLS_JAR))
    classes = set(found.out.split())
    assert f"{T}TopicCommand" in classes
    tested = [name for name, _ in TOOLS.values()]
    assert sorted(tested) == sorted(classes | MORE_CLASSES)
    assert sorted(row[0].strip("`") for row in rows("tools")) == sorted(tested)


# --- topics and records -----------------------------------------------------------------------


@tool(f"{T}TopicCommand", "kafka-topics")
def test_topics(trial: Trial, node: Node, admin: Admin) -> None:
    first = ("--topic", "topics-a")
    settings = ("--config", "retention.ms=3600000")
    trial.works("create", *node.at, "--create", *first, "--partitions", "2", *settings)
    trial.works("create if absent", *node.at, "--create", *first, "--if-not-exists")
    given = ("--replica-assignment", "1,1,1")
    trial.works("create with an assignment", *node.at, "--create", "--topic", "topics-b", *given)
    assert {"topics-a", "topics-b"} <= set(trial.works("list", *node.at, "--list").split())
    described = trial.works("describe", *node.at, "--describe", *first)
    assert re.search(
        r"PartitionCount: 2\tReplicationFactor: 1\tConfigs: .*retention.ms=3600000", described
    )
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 2
    for which in ("unavailable", "under-replicated", "under-min-isr", "at-min-isr"):
        asked = (*node.at, "--describe", *first, f"--{which}-partitions")
        found = trial.works("describe by state", *asked)
        assert found.count("Partition:") == (2 if which == "at-min-isr" else 0), which
    with_overrides = (*node.at, "--describe", "--topics-with-overrides", *first)
    assert "retention.ms=3600000" in trial.works("describe by overrides", *with_overrides)
    trial.works("add partitions", *node.at, "--alter", *first, "--partitions", "5")
    assert set(admin.ends("topics-a")) == {0, 1, 2, 3, 4}
    described = trial.run(*node.at, "--describe", *first).out
    topic_id = re.search(r"TopicId: (\S+)", described)
    assert topic_id is not None
    by_id = trial.works("describe by id", *node.at, "--describe", "--topic-id", topic_id[1])
    assert "Topic: topics-a" in by_id
    trial.works("delete", *node.at, "--delete", *first)
    assert "topics-a" not in trial.run(*node.at, "--list").out.split()
    again = trial.run(*node.at, "--delete", *first)
    assert again.code == 1
    assert "does not exist" in again.text


@tool(f"{T}ConsoleProducer", "kafka-console-producer")
def test_console_producer(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("console-producer")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        trial.works(
            "produce with every codec",
            *node.at,
            "--topic",
            topic,
            "--compression-codec",
            codec,
            stdin=f"a {codec}\nb {codec}\n",
        )
    sync = (*node.at, "--topic", topic, "--sync", "--command-property", "acks=0")
    trial.works("acks 0", *sync, stdin="last\n")
    assert admin.ends(topic) == {0: 11}


@tool(f"{T}consumer.ConsoleConsumer", "kafka-console-consumer")
def test_console_consumer(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("console-consumer", records=5)
    everything = ("--from-beginning", "--max-messages", "5")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    printed = trial.works("a group", *node.at, "--topic", topic, *everything, *shown)
    assert printed.splitlines() == [f"Offset:{n}\tv{n}\tv{n}" for n in range(5)]
    some = ("--partition", "0", "--offset", "3", "--max-messages", "2")
    assert trial.works("a partition", *node.at, "--topic", topic, *some) == "v3\nv4\n"
    late = ("--include", "console-cons.*", "--from-beginning", "--max-messages", "5")
    committed = ("--isolation-level", "read_committed")
    printed = trial.works("a pattern, committed only", *node.at, *late, *committed)
    assert printed.split() == [f"v{n}" for n in range(5)]
    formatter = ("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter")
    admin.consume(topic, "console-consumer-group", 5)
    internal = ("--topic", "__consumer_offsets", *formatter, "--from-beginning")
    printed = trial.run(*node.at, *internal, "--timeout-ms", "1000").out
    assert '"group":"console-consumer-group","topic":"console-consumer","partition":0' in printed


@tool(f"{T}GetOffsetShell", "kafka-get-offsets")
def test_get_offsets(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("get-offsets", records=4)

    def ask(what: str, time: str) -> dict[int, int]:
        return offsets(trial.works(what, *node.at, "--topic", topic, "--time", time))

    assert ask("latest", "latest") == {0: 4}
    assert ask("earliest", "earliest") == {0: 0}
    assert ask("earliest local", "earliest-local") == {0: 0}
    assert ask("latest tiered", "latest-tiered") in ({}, {0: -1})
    assert ask("max timestamp", "max-timestamp")[0] in range(4)
    assert ask("by time", "0") == {0: 0}
    pairs = ("--topic-partitions", f"{topic}:0,get-off.*:1-3")
    assert offsets(trial.works("by partition", *node.at, *pairs)) == {0: 4}


@tool(f"{T}DeleteRecordsCommand", "kafka-delete-records")
def test_delete_records(trial: Trial, node: Node, admin: Admin, tmp_path: Path) -> None:
    topic = admin.topic("delete-records", partitions=1, records=6)
    given = tmp_path / "offsets.json"
    asked = [{"topic": topic, "partition": 0, "offset": 4}]
    given.write_text(json.dumps({"partitions": asked, "version": 1}))
    printed = trial.works("delete", *node.at, "--offset-json-file", str(given))
    assert f"partition: {topic}-0\tlow_watermark: 4" in printed
    assert (admin.starts(topic), admin.ends(topic)) == ({0: 4}, {0: 6})
    asked[0]["offset"] = 9
    given.write_text(json.dumps({"partitions": asked, "version": 1}))
    beyond = trial.run(*node.at, "--offset-json-file", str(given))
    assert "OffsetOutOfRangeException" in beyond.text


@tool(f"{T}ProducerPerformance", "kafka-producer-perf-test")
def test_producer_performance(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("producer-perf")
    load = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    properties = ("--command-property", "acks=all")
    printed = trial.works("produce", *node.at, "--topic", topic, *load, *properties)
    assert "2000 records sent" in printed
    assert admin.ends(topic) == {0: 2000}
    refuses = ("--transactional-id", "perf", "--transaction-duration-ms", "100")
    trial.refuses(
        "with transactions",
        *node.at,
        "--topic",
        topic,
        *load,
        *refuses,
        saying="TransactionalIdAuthorizationException",
    )


@tool(f"{T}ConsumerPerformance", "kafka-consumer-perf-test")
def test_consumer_performance(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("consumer-perf", partitions=2, records=50)
    printed = trial.works("consume", *node.at, "--topic", topic, "--num-records", "50")
    assert printed.splitlines()[1].split(", ")[4] == "50"


@tool(f"{T}EndToEndLatency", "kafka-e2e-latency")
def test_end_to_end_latency(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("e2e-latency")
    load = ("--num-records", "20", "--record-size", "30", "--producer-acks", "all")
    assert "Avg latency:" in trial.works("measure", *node.at, "--topic", topic, *load)
    assert admin.ends(topic) == {0: 20}


@tool(f"{T}VerifiableProducer", "kafka-verifiable-producer")
def test_verifiable_producer(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("verifiable-producer")
    printed = trial.works("produce", *node.at, "--topic", topic, "--max-messages", "20")
    events = [json.loads(line) for line in printed.splitlines()]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert [event["offset"] for event in sent] == list(range(20))
    assert admin.ends(topic) == {0: 20}


@tool(f"{T}VerifiableConsumer", "kafka-verifiable-consumer")
def test_verifiable_consumer(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("verifiable-consumer", records=20)
    group = ("--group-id", "verifiable", "--reset-policy", "earliest")
    for protocol, others in (("range", ()), ("static member", ("--group-instance-id", "i1"))):
        printed = trial.works(
            f"consume, {protocol}",
            *node.at,
            "--topic",
            topic,
            "--max-messages",
            "20",
            *(*group[:1], f"verifiable-{protocol}".replace(" ", "-"), *group[2:]),
            *others,
        )
        events = [json.loads(line) for line in printed.splitlines()]
        commits = [event for event in events if event["name"] == "offsets_committed"]
        assert commits[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 20}]
    trial.refuses(
        "--group-protocol consumer",
        *node.at,
        "--topic",
        topic,
        *group,
        "--group-protocol",
        "consumer",
        saying="The cluster does not support the new CONSUMER group protocol",
        patience_ms=10_000,
    )


@tool(f"{T}LogCompactionTester", None)
def test_log_compaction(trial: Trial, node: Node) -> None:
    printed = trial.worked("compact and verify", node.slow["compaction"].result())
    assert "Validated 100 values, 0 mismatches." in printed


@tool(f"{T}ClientCompatibilityTest", None)
def test_client_compatibility(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("compatibility")
    supported = (
        "offsets-for-times",
        "cluster-id",
        "create-topics",
        "describe-acls",
        "describe-configs",
        "idempotent-producer",
    )
    expected = [part for name in supported for part in (f"--{name}-supported", "true")]
    expected += ["--expect-record-too-large-exception", "false", "--num-cluster-nodes", "1"]
    printed = trial.works("everything it asks for", *node.at, "--topic", topic, *expected)
    assert "All consumer tests passed" in printed or "SUCCESS" in printed, printed


@tool(f"{T}ReplicaVerificationTool", "kafka-replica-verification")
def test_replica_verification(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("replica-verification", records=3)
    asked = ("--broker-list", node.place.bootstrap, "--topics-include", topic)
    every = ("--report-interval-ms", "200")
    printed = trial.works("verify", *asked, *every, patience_ms=2_500)
    assert f"max lag is 0 for partition {topic}-0 at offset 3 among 1 partitions" in printed


# --- configurations ---------------------------------------------------------------------------


@tool("kafka.admin.ConfigCommand", "kafka-configs")
def test_configs(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("configs")
    entities = (
        ("topics", topic, "retention.ms=777", "retention.ms=777"),
        ("brokers", "1", "log.cleaner.threads=2", "log.cleaner.threads=2"),
        ("brokers", None, "num.io.threads=9", "num.io.threads=9"),
        ("users", "alice", "producer_byte_rate=1000", "producer_byte_rate=1000.0"),
        ("users", None, "request_percentage=150", "request_percentage=150.0"),
        ("users", "bob", "SCRAM-SHA-256=[iterations=4096,password=p]", "iterations=4096"),
        ("clients", "c1", "consumer_byte_rate=2000", "consumer_byte_rate=2000.0"),
        ("ips", "10.1.2.3", "connection_creation_rate=7", "connection_creation_rate=7.0"),
        ("client-metrics", "cm", "interval.ms=70000", "interval.ms=70000"),
        ("groups", "g", "consumer.session.timeout.ms=50000", "consumer.session.timeout.ms=50000"),
    )
    for kind, name, change, shown in entities:
        whom: tuple[str, ...] = ("--entity-type", kind)
        whom += ("--entity-default",) if name is None else ("--entity-name", name)
        what = f"{kind}, default" if name is None else kind
        trial.works(what, *node.at, "--alter", *whom, "--add-config", change)
        assert shown in trial.works(what, *node.at, "--describe", *whom), what
        key = change.partition("=")[0]
        trial.works(what, *node.at, "--alter", *whom, "--delete-config", key)
        left = trial.works(what, *node.at, "--describe", *whom)
        assert shown not in left, what
    for level in ("DEBUG", "INFO"):
        whom = ("--entity-type", "broker-loggers", "--entity-name", "1")
        trial.works("broker-loggers", *node.at, "--alter", *whom, "--add-config", f"root={level}")
        assert f"root={level}" in trial.works("broker-loggers", *node.at, "--describe", *whom)
    pair = ("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients")
    limit = ("--add-config", "producer_byte_rate=5")
    what = "users and clients"
    trial.works(what, *node.at, "--alter", *pair, "--entity-default", *limit)
    printed = trial.works(what, *node.at, "--describe", *pair, "--entity-default")
    assert "producer_byte_rate=5.0" in printed
    _configs_by_controller(trial, node)


def _configs_by_controller(trial: Trial, node: Node) -> None:
    whom = ("--entity-type", "brokers", "--entity-name", "1")
    what = "brokers, by a controller"
    change = ("--add-config", "log.cleaner.threads=3")
    trial.works(what, *node.controller, "--alter", *whom, *change)
    assert "log.cleaner.threads=3" in trial.works(what, *node.at, "--describe", *whom)
    assert "log.cleaner.threads=3" in trial.works(what, *node.controller, "--describe", *whom)
    trial.works(what, *node.controller, "--alter", *whom, "--delete-config", "log.cleaner.threads")
    wrong = trial.run(*node.at, "--alter", *whom, "--add-config", "log.cleaner.threads=none")
    assert "InvalidRequestException" in wrong.text
    assert "log.cleaner.threads" in wrong.text


@tool(f"{T}ClientMetricsCommand", "kafka-client-metrics")
def test_client_metrics(trial: Trial, node: Node) -> None:
    name = ("--name", "subscription")
    given = ("--metrics", "org.apache.kafka.producer.", "--interval", "61000")
    match = ("--match", "client_software_name=apache-kafka-java")
    trial.works("alter", *node.at, "--alter", *name, *given, *match)
    printed = trial.works("describe", *node.at, "--describe", *name)
    assert "interval.ms=61000" in printed
    assert "match=client_software_name=apache-kafka-java" in printed
    assert "subscription" in trial.works("list", *node.at, "--list").split()
    trial.works("delete", *node.at, "--delete", *name)
    assert "subscription" not in trial.run(*node.at, "--list").out.split()


# --- groups -----------------------------------------------------------------------------------


@tool(f"{T}consumer.group.ConsumerGroupCommand", "kafka-consumer-groups")
def test_consumer_groups(trial: Trial, node: Node, admin: Admin, tmp_path: Path) -> None:
    topic = admin.topic("consumer-groups", partitions=2, records=10)
    group = ("--group", "cg")
    assert len(admin.consume(topic, "cg", 10)) == 10
    assert ["cg", "Empty"] in [
        line.split() for line in trial.works("list", *node.at, "--list", "--state").splitlines()
    ]
    ends = admin.ends(topic)
    assert _positions(trial, node, "cg") == ends
    for what, column in (("state", "STATE"), ("members", "CONSUMER-ID")):
        asked = (*node.at, "--describe", *group, f"--{what}")
        assert column in trial.works(f"describe {what}", *asked)
    _live_group(trial, node, topic)
    _reset_offsets(trial, node, tmp_path, topic, ends)
    deleted = trial.works(
        "delete offsets", *node.at, "--delete-offsets", *group, "--topic", f"{topic}:1"
    )
    assert "Successful" in deleted
    assert set(_positions(trial, node, "cg")) == {0}
    trial.works("delete", *node.at, "--delete", *group)
    assert "cg" not in trial.run(*node.at, "--list").out.split()
    gone = trial.run(*node.at, "--describe", *group)
    assert "Group cg not found" in gone.text


@contextlib.contextmanager
def member(node: Node, group: str, topic: str) -> Iterator[None]:
    """Somebody consumes in the group, and has partitions."""
    settings = {"bootstrap.servers": node.place.bootstrap, "group.id": group, "client.id": "live"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "log_level": 2})
    try:
        consumer.subscribe([topic])
        for _ in range(600):
            consumer.poll(0.1)
            if consumer.assignment():
                break
        yield
    finally:
        consumer.close()


def _live_group(trial: Trial, node: Node, topic: str) -> None:
    whom = (*node.at, "--group", "live")
    with member(node, "live", topic):
        state = trial.works("describe state", *whom, "--describe", "--state")
        assert re.search(r"range\s+Stable\s+1\n", state), state
        (row,) = table(trial.works("describe members", *whom, "--describe", "--members"))
        assert (row["CLIENT-ID"], row["#PARTITIONS"]) == ("live", "2")
        found = trial.works("describe offsets", *whom, "--describe")
        assert {each["CLIENT-ID"] for each in _of_topics(found)} == {"live"}
        refused = trial.run(*whom, "--reset-offsets", "--topic", topic, "--to-earliest")
        assert "Assignments can only be reset if the group 'live' is inactive" in refused.text
        refused = trial.run(*whom, "--delete")
        assert "GroupNotEmptyException" in refused.text


def _positions(trial: Trial, node: Node, group: str) -> dict[int, int]:
    printed = trial.works("describe offsets", *node.at, "--describe", "--group", group)
    return {int(row["PARTITION"]): int(row["CURRENT-OFFSET"]) for row in _of_topics(printed)}


def _of_topics(printed: str) -> list[dict[str, str]]:
    return [row for row in table(printed) if row.get("PARTITION", "").isdecimal()]


def _reset_offsets(
    trial: Trial, node: Node, tmp_path: Path, topic: str, ends: dict[int, int]
) -> None:
    group = ("--group", "cg")
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,1\n{topic},1,2\n")
    zeros = dict.fromkeys(ends, 0)
    whole = ("--topic", topic)
    variants: list[tuple[tuple[str, ...], tuple[str, ...], dict[int, int]]] = [
        (("--to-earliest",), whole, zeros),
        (("--to-latest",), ("--all-topics",), ends),
        (("--to-offset", "1"), whole, {0: 1, 1: 1}),
        (("--shift-by", "1"), whole, {0: 2, 1: 2}),
        (("--shift-by", "-1"), (("--topic", f"{topic}:1")), {0: 2, 1: 1}),
        (("--to-current",), whole, {0: 2, 1: 1}),
        (("--by-duration", "PT1H"), whole, zeros),
        (("--to-datetime", "2099-01-01T00:00:00.000"), whole, ends),
        (("--to-datetime", "2000-01-01T00:00:00.000"), whole, zeros),
        (("--from-file", str(plan)), (), {0: 1, 1: 2}),
    ]
    for how, scope, expected in variants:
        what = f"reset {how[0]}"
        asked = (*node.at, "--reset-offsets", *group, *scope, *how)
        before = _positions(trial, node, "cg")
        trial.works(what, *asked, "--dry-run")
        assert _positions(trial, node, "cg") == before, what
        trial.works(what, *asked, "--execute")
        assert _positions(trial, node, "cg") == expected, what
    exported = trial.works(
        "reset --export", *node.at, "--reset-offsets", *group, "--all-topics", "--to-current",
        "--export", "--dry-run",
    )  # fmt: skip
    assert sorted(exported.split()) == [f"{topic},0,1", f"{topic},1,2"]


@tool(f"{T}GroupsCommand", "kafka-groups")
def test_groups(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("groups", records=1)
    admin.consume(topic, "groups-group", 1)
    printed = trial.works("list", *node.at, "--list")
    assert ["groups-group", "Classic", "consumer"] in [
        line.split() for line in printed.splitlines()
    ]
    only = trial.works("list by type", *node.at, "--list", "--group-type", "classic")
    assert "groups-group" in only
    assert "groups-group" in trial.works("list consumers", *node.at, "--list", "--consumer")
    assert "groups-group" not in trial.works("list share groups", *node.at, "--list", "--share")


@tool(f"{T}StreamsResetter", "kafka-streams-application-reset")
def test_streams_application_reset(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("streams-input", partitions=2, records=10)
    admin.topic("app-store-changelog", records=1)
    admin.topic("app-by-repartition", records=1)
    admin.consume(topic, "app", 10)
    asked = (*node.at, "--application-id", "app", "--input-topics", topic)
    printed = trial.works("dry run", *asked, "--dry-run")
    assert f"Topic: {topic} Partition: 0 Offset: 0" in printed
    trial.works("reset", *asked)
    listed = set(trial.tools.run(f"{T}TopicCommand", *node.at, "--list").out.split())
    assert topic in listed
    assert not {"app-store-changelog", "app-by-repartition"} & listed
    assert admin.consume(topic, "app", 10)


@tool(f"{T}streams.StreamsGroupCommand", "kafka-streams-groups")
def test_streams_groups(trial: Trial, node: Node) -> None:
    assert trial.works("list", *node.at, "--list").strip() == ""
    trial.refuses("describe", *node.at, "--describe", "--group", "s", saying=NO_STREAMS_GROUPS)


@tool(f"{T}consumer.group.ShareGroupCommand", "kafka-share-groups")
def test_share_groups(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("share-groups")
    assert trial.works("list", *node.at, "--list").strip() == ""
    group = ("--group", "s")
    trial.refuses("describe", *node.at, "--describe", *group, saying=NO_SHARE_GROUPS)
    reset = ("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    trial.refuses("reset offsets", *node.at, *reset, saying=NO_SHARE_GROUPS)
    trial.refuses("delete", *node.at, "--delete", *group, saying="Group 's' is not a share group.")


@tool(f"{T}consumer.ConsoleShareConsumer", "kafka-console-share-consumer")
def test_console_share_consumer(trial: Trial, node: Node, admin: Admin) -> None:
    topic = ("--topic", admin.topic("console-share", records=1))
    asked = (*node.at, *topic, "--max-messages", "1", "--timeout-ms", "1000")
    trial.refuses("consume", *asked, saying=NO_SHARE_CONSUMERS)


@tool(f"{T}ShareConsumerPerformance", "kafka-share-consumer-perf-test")
def test_share_consumer_performance(trial: Trial, node: Node, admin: Admin) -> None:
    topic = ("--topic", admin.topic("share-perf", records=1))
    trial.refuses("consume", *node.at, *topic, "--num-records", "1", saying=NO_SHARE_CONSUMERS)


@tool(f"{T}VerifiableShareConsumer", "kafka-verifiable-share-consumer")
def test_verifiable_share_consumer(trial: Trial, node: Node, admin: Admin) -> None:
    topic = ("--topic", admin.topic("verifiable-share", records=1))
    asked = (*node.at, *topic, "--group-id", "vs", "--max-messages", "1")
    trial.refuses("consume", *asked, saying=NO_SHARE_CONSUMERS)


# --- the cluster ------------------------------------------------------------------------------


@tool(f"{T}ClusterTool", "kafka-cluster")
def test_cluster(trial: Trial, node: Node) -> None:
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        printed = trial.works(f"cluster-id{by}", "cluster-id", *at)
        assert printed.strip() == f"Cluster ID: {CLUSTER_ID}"
        port = node.place.controller_port if by else node.place.port
        listed = trial.works(f"list-endpoints{by}", "list-endpoints", *at)
        assert f"127.0.0.1 {port}" in re.sub(" +", " ", listed)
        unknown = trial.run("unregister", *at, "--id", "77")
        assert "BrokerIdNotRegisteredException" in unknown.text
    fenced = trial.works("fenced brokers", "list-endpoints", *node.at, "--include-fenced-brokers")
    assert "unfenced" in fenced


@tool(f"{T}BrokerApiVersionsCommand", "kafka-broker-api-versions")
def test_broker_api_versions(trial: Trial, node: Node) -> None:
    printed = trial.works("ask", *node.at)
    assert f"127.0.0.1:{node.place.port} (id: 1 rack: r1 isFenced: false)" in printed
    assert "Produce(0): 0 to 13 [usable: 13]" in printed
    assert "Fetch(1): 4 to 18 [usable: 18]" in printed
    assert "ShareFetch(78): UNSUPPORTED" in printed


@tool(f"{T}FeatureCommand", "kafka-features")
def test_features(trial: Trial, node: Node) -> None:
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        printed = re.sub(r"\s+", " ", trial.works(f"describe{by}", *at, "describe"))
        assert (
            "metadata.version SupportedMinVersion: 3.3-IV3 SupportedMaxVersion: 4.3-IV0 "
            "FinalizedVersionLevel: 4.3-IV0"
        ) in printed
        trial.works(
            f"upgrade to the level it has{by}", *at, "upgrade", "--feature", "metadata.version=30"
        )
    trial.works("version-mapping", "version-mapping", "--release-version", "4.3")
    trial.works("feature-dependencies", "feature-dependencies", "--feature", "group.version=1")
    trial.refuses(
        "upgrade of what is not built",
        *node.at,
        "upgrade",
        "--feature",
        "transaction.version=2",
        saying="transaction.version cannot be set to level 2: this controller supports 0 to 0",
    )
    trial.refuses(
        "downgrade that loses metadata",
        *node.at,
        "downgrade",
        "--feature",
        "metadata.version=7",
        saying="a downgrade that loses metadata is not supported",
    )


@tool(f"{T}MetadataQuorumCommand", "kafka-metadata-quorum")
def test_metadata_quorum(trial: Trial, node: Node) -> None:
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        printed = trial.works(f"describe --status{by}", *at, "describe", "--status")
        assert re.search(r"LeaderId:\s+1\n", printed)
        assert f"CONTROLLER://127.0.0.1:{node.place.controller_port}" in printed
        printed = trial.works(f"describe --replication{by}", *at, "describe", "--replication")
        (row,) = table(printed)
        assert (row["NodeId"], row["Status"], row["Lag"]) == ("1", "Leader", "0")
    who = ("--controller-id", "1", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    trial.refuses(
        "remove-controller",
        *node.at,
        "remove-controller",
        *who,
        saying="The node does not support REMOVE_RAFT_VOTER",
    )
    config = ("--command-config", str(node.place.write_config()))
    trial.refuses(
        "add-controller",
        *node.at,
        *config,
        "add-controller",
        saying="The node does not support ADD_RAFT_VOTER",
    )


@tool(f"{T}LogDirsCommand", "kafka-log-dirs")
def test_log_dirs(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("log-dirs", partitions=2, records=10)
    asked = ("--describe", "--topic-list", topic, "--broker-list", "1")
    printed = trial.works("describe", *node.at, *asked)
    (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert (directory["logDir"], directory["error"]) == (str(node.place.data), None)
    found = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert set(found) == {f"{topic}-0", f"{topic}-1"}
    assert sum(found.values()) > 0


@tool(f"{T}LeaderElectionCommand", "kafka-leader-election")
def test_leader_election(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("leader-election")
    for kind in ("preferred", "unclean"):
        which = ("--election-type", kind, "--topic", topic, "--partition", "0")
        printed = trial.works(f"{kind}, nothing to do", *node.at, *which)
        assert f"Valid replica already elected for partitions {topic}-0" in printed
    trial.works("all", *node.at, "--election-type", "preferred", "--all-topic-partitions")


@tool(f"{T}reassign.ReassignPartitionsCommand", "kafka-reassign-partitions")
def test_reassign_partitions(trial: Trial, node: Node, admin: Admin, tmp_path: Path) -> None:
    topic = admin.topic("reassign")
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        assert "No partition reassignments found." in trial.works(f"list{by}", *at, "--list")
    topics, moves = tmp_path / "topics.json", tmp_path / "moves.json"
    topics.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    wanted = ("--topics-to-move-json-file", str(topics), "--broker-list", "1")
    proposed = trial.works("generate", *node.at, "--generate", *wanted).splitlines()[-1]
    assert json.loads(proposed)["partitions"][0]["replicas"] == [1]
    moves.write_text(proposed)
    plan = ("--reassignment-json-file", str(moves))
    printed = trial.works("execute", *node.at, "--execute", *plan)
    assert "Successfully started partition reassignment" in printed
    printed = trial.works("verify", *node.at, "--verify", *plan)
    assert f"Reassignment of partition {topic}-0 is completed." in printed
    printed = trial.works("cancel", *node.at, "--cancel", *plan)
    assert "None of the specified partition reassignments are active." in printed


@tool(f"{T}TransactionsCommand", "kafka-transactions")
def test_transactions(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("transactions", records=2)
    where = ("--topic", topic, "--partition", "0")
    (row,) = table(trial.works("describe-producers", *node.at, "describe-producers", *where))
    assert (row["ProducerEpoch"], row["LastSequence"]) == ("0", "1")
    trial.works("find-hanging", *node.at, "find-hanging", "--broker-id", "1")
    trial.refuses("list", *node.at, "list", saying="The node does not support LIST_TRANSACTIONS")
    trial.refuses(
        "describe",
        *node.at,
        "describe",
        "--transactional-id",
        "x",
        saying="failed due to authorization failure",
    )
    whom = ("--producer-id", "1", "--producer-epoch", "0", "--coordinator-epoch", "0")
    trial.refuses(
        "abort", *node.at, "abort", *where, *whom, saying="does not support WRITE_TXN_MARKERS"
    )
    trial.refuses(
        "forceTerminateTransaction",
        *node.at,
        "forceTerminateTransaction",
        "--transactionalId",
        "x",
        saying="failed due to authorization failure",
    )


@tool(f"{T}TransactionalMessageCopier", None)
def test_transactional_message_copier(trial: Trial, node: Node, admin: Admin) -> None:
    source, target = admin.topic("copier-in", records=1), admin.topic("copier-out")
    trial.refuses(
        "copy",
        *("--broker-list", node.place.bootstrap, "--transactional-id", "copier"),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--consumer-group", "copier", "--max-messages", "1"),
        saying="TransactionalIdAuthorizationException",
    )


@tool(f"{T}AclCommand", "kafka-acls")
def test_acls(trial: Trial, node: Node) -> None:
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        trial.refuses(f"list{by}", *at, "--list", saying=NO_AUTHORIZER)
    rule = ("--allow-principal", "User:u", "--operation", "Read", "--topic", "t")
    trial.refuses("add", *node.at, "--add", *rule, saying=NO_AUTHORIZER)
    trial.refuses("remove", *node.at, "--remove", "--force", *rule, saying=NO_AUTHORIZER)


@tool(f"{T}DelegationTokenCommand", "kafka-delegation-tokens")
def test_delegation_tokens(trial: Trial, node: Node) -> None:
    config = ("--command-config", "/dev/null")
    for what, api, arguments in (
        ("create", "CREATE", ("--max-life-time-period", "-1")),
        ("renew", "RENEW", ("--renew-time-period", "-1", "--hmac", "AAAA")),
        ("expire", "EXPIRE", ("--expiry-time-period", "-1", "--hmac", "AAAA")),
        ("describe", "DESCRIBE", ()),
    ):
        saying = f"The node does not support {api}_DELEGATION_TOKEN"
        trial.refuses(what, *node.at, *config, f"--{what}", *arguments, saying=saying)


# --- files ------------------------------------------------------------------------------------


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
    other = Place(tmp_path / "other", {})
    given = ("-t", CLUSTER_ID, "-c", str(other.write_config()), "--standalone", *COMMON_FEATURES)
    trial.works("format, and a node starts there", "format", *given)
    server = KraftboxServer(other).start()
    assert server.stop() == 0
    assert len(trial.works("random-uuid", "random-uuid").strip()) == 22
    assert "metadata.version=30" in trial.works("version-mapping", "version-mapping")
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


@tool("org.apache.kafka.shell.MetadataShell", "kafka-metadata-shell")
def test_metadata_shell(trial: Trial, node: Node, admin: Admin, tmp_path: Path) -> None:
    libs = kafka_libs()
    if libs is None or not list(libs.glob("kafka-shell-*.jar")):
        pytest.skip("the folder of Kafka's jars has no kafka-shell (docs/gaps.md)")
    admin.topic("metadata-shell", partitions=3)
    busy = node.place.data / "__cluster_metadata-0" / f"{0:020}.log"
    locked = trial.run("--snapshot", str(busy), "ls", "/")
    assert "Please ensure that no broker or controller process is using this" in locked.text
    copied = tmp_path / "__cluster_metadata-0"
    shutil.copytree(busy.parent, copied)
    log = ("--snapshot", str(copied / busy.name))
    where = "/image/topics/byName/metadata-shell"
    for wanted, *command in (
        ("metadata-shell", "ls", "/image/topics/byName"),
        ("2:", "tree", where),
        ("leader", "cat", f"{where}/0"),
    ):
        # The shell may look before its own reader is through with the file.
        for _ in range(10):
            printed = trial.works(command[0], *log, *command)
            if wanted in printed:
                break
        assert wanted in printed, printed


# --- tools that need no broker ----------------------------------------------------------------


@tool(f"{T}JmxTool", "kafka-jmx")
def test_jmx(trial: Trial, node: Node) -> None:
    done = node.slow["jmx"].result()
    trial.refused("read MBeans: there is no JVM", done, "Could not connect to JMX url")


@tool(f"{T}OAuthCompatibilityTool", None)
def test_oauth_compatibility(trial: Trial) -> None:
    url = ("--sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/token")
    trial.refuses(
        "asks an OAuth provider, not a broker",
        *("--clientId", "c", "--clientSecret", "s", *url),
        saying="sasl.oauthbearer.token.endpoint.url",
    )


@tool(f"{T}ConnectPluginPath", "connect-plugin-path")
def test_connect_plugin_path(trial: Trial, tmp_path: Path) -> None:
    """It looks through its whole class path, so it gets a short one."""
    libs = kafka_libs()
    assert libs is not None
    wanted = (
        "kafka-tools-",
        "kafka-clients",
        "connect-",
        "argparse",
        "classgraph",
        "slf4j-api",
        "maven-art",
    )
    jars = [path for path in libs.glob("*.jar") if path.name.startswith(wanted)]
    command = ["java", "-cp", ":".join(map(str, jars)), trial.name]
    done = subprocess.run(
        [*command, "list", "--plugin-path", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    printed = trial.worked(
        "list plug-ins: needs no broker", ToolRun(done.returncode, done.stdout, done.stderr)
    )
    assert "Total plugins:" in printed
