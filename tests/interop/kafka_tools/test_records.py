"""Kafka's tools for topics and their records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testkit.kafka.tool_table import Trial
from tests.interop.kafka_tools.toolbox import Admin, Node, T, offsets, tool

pytestmark = pytest.mark.interop


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
    seeded = ("--key-distribution", "random", "--record-key-range", "5", "--random-seed", "7")
    trial.works("produce with keys", *node.at, "--topic", topic, *load, *seeded)
    assert admin.ends(topic) == {0: 4000}
    refuses = ("--transactional-id", "perf", "--transaction-duration-ms", "100")
    trial.refuses(
        "with transactions",
        *node.at,
        "--topic",
        topic,
        *load,
        *refuses,
        saying="Kraftbox does not support transactions",
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
            *("--close-timeout", "5000"),
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
