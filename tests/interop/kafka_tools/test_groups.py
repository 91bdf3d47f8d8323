"""Kafka's tools for groups of all kinds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from testkit.kafka.tool_table import Trial
from tests.interop.kafka_tools.toolbox import (
    NO_SHARE_CONSUMERS,
    NO_SHARE_GROUPS,
    NO_STREAMS_GROUPS,
    Admin,
    Node,
    T,
    table,
    tool,
)

pytestmark = pytest.mark.interop


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
    """Run a consumer of the group that has partitions."""
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
    group = ("--describe", "--group", "s")
    trial.refuses("describe", *node.at, *group, saying=NO_STREAMS_GROUPS)
    trial.refuses("describe --topology", *node.at, *group, "--topology", saying=NO_STREAMS_GROUPS)


@tool(f"{T}consumer.group.ShareGroupCommand", "kafka-share-groups")
def test_share_groups(trial: Trial, node: Node, admin: Admin, tmp_path: Path) -> None:
    topic = admin.topic("share-groups")
    assert trial.works("list", *node.at, "--list").strip() == ""
    group = ("--group", "s")
    trial.refuses("describe", *node.at, "--describe", *group, saying=NO_SHARE_GROUPS)
    reset = ("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    trial.refuses("reset offsets", *node.at, *reset, saying=NO_SHARE_GROUPS)
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,0\n")
    for how in (("--to-current",), ("--to-offset", "0"), ("--from-file", str(plan))):
        scope = () if how[0] == "--from-file" else ("--topic", topic)
        asked = ("--reset-offsets", *group, *scope, *how, "--dry-run", "--export")
        trial.refuses(f"reset {how[0]} --export", *node.at, *asked, saying=NO_SHARE_GROUPS)
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
    pattern = ("--ack-pattern", "accept,reject", "--acknowledgement-mode", "sync")
    trial.refuses("consume, --ack-pattern", *asked, *pattern, saying=NO_SHARE_CONSUMERS)
