"""Kafka's tools for configurations."""

from __future__ import annotations

import pytest

from testkit.kafka.tool_table import Trial
from tests.interop.kafka_tools.toolbox import Admin, Node, T, tool

pytestmark = pytest.mark.interop


@tool(f"{T}ConfigCommand", "kafka-configs")
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
