"""Descriptions of each kind of resource for DescribeConfigs."""

from runtime.config import Source, Type
from runtime.config.described import (
    DescribedKey,
    chosen,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_node,
    describe_topic,
)
from testkit.memory.node_config import node


def by_name(described: list[DescribedKey]) -> dict[str, DescribedKey]:
    return {each.value.key.name: each for each in described}


def synonyms(described: DescribedKey) -> list[tuple[str, str | None, Source]]:
    return [tuple(synonym) for synonym in described.value.synonyms]


def test_no_names_mean_all():
    every = describe_loggers("INFO")
    assert list(chosen(every, None)) == list(chosen(every, [])) == every
    assert list(chosen(every, ["root"])) == every
    assert list(chosen(every, ["other"])) == []


def test_a_node_and_what_is_read_only():
    own = {"log.cleaner.threads": "2", "leader.replication.throttled.rate": "10"}
    shown = by_name(describe_node(node(), cluster={}, broker=own))
    assert shown["node.id"].read_only
    assert synonyms(shown["broker.id"])[0] == ("broker.id", "1", Source.STATIC_BROKER)
    assert shown["broker.id"].value.value == "1"
    assert "follower.replication.throttled.rate" not in shown
    assert not shown["log.cleaner.threads"].read_only
    assert not shown["leader.replication.throttled.rate"].read_only
    assert shown["log.cleaner.threads"].value.source is Source.DYNAMIC_BROKER


def test_a_node_with_keys_of_one_listener_and_of_plug_ins():
    static = node(my_plugin_key="secret")
    shown = by_name(
        describe_node(
            static,
            cluster={"my.reporter.url": "a", "max.connections": "9"},
            broker={"my.reporter.url": "b", "listener.name.plaintext.max.connections": "5"},
        )
    )
    reporter = shown["my.reporter.url"]
    assert (reporter.value.value, reporter.read_only) == (None, True)
    assert reporter.value.key.type is Type.UNKNOWN
    assert synonyms(reporter) == [
        ("my.reporter.url", None, Source.DYNAMIC_BROKER),
        ("my.reporter.url", None, Source.DYNAMIC_DEFAULT_BROKER),
    ]
    assert shown["my.plugin.key"].value.source is Source.STATIC_BROKER
    limit = shown["listener.name.plaintext.max.connections"]
    assert (limit.value.value, limit.read_only) == ("5", True)
    assert synonyms(limit) == [
        ("listener.name.plaintext.max.connections", "5", Source.DYNAMIC_BROKER),
        ("max.connections", "9", Source.DYNAMIC_DEFAULT_BROKER),
        ("max.connections", "2147483647", Source.DEFAULT),
    ]


def test_the_default_of_all_brokers_is_what_was_set_there():
    shown = by_name(describe_cluster_default({"log.cleaner.threads": "2", "my.key": "x"}))
    assert synonyms(shown["log.cleaner.threads"]) == [
        ("log.cleaner.threads", "2", Source.DYNAMIC_DEFAULT_BROKER)
    ]
    assert (shown["my.key"].value.value, shown["my.key"].read_only) == (None, True)
    assert len(shown) == 2


def test_a_topic():
    shown = by_name(
        describe_topic(node(), {"flush.ms": "6"}, cluster={"log.retention.ms": "7"}, broker={})
    )
    assert shown["flush.ms"].value.source is Source.TOPIC
    assert shown["retention.ms"].value.value == "7"
    assert not any(each.read_only for each in shown.values())


def test_a_group_falls_back_to_the_node():
    static = node(group_consumer_session_timeout_ms="50000")
    given = {"consumer.heartbeat.interval.ms": "6000"}
    shown = by_name(describe_group(static, given, cluster={}, broker={}))
    session = shown["consumer.session.timeout.ms"]
    assert (session.value.value, session.value.source) == ("50000", Source.STATIC_BROKER)
    assert synonyms(session) == [
        ("group.consumer.session.timeout.ms", "50000", Source.STATIC_BROKER),
        ("group.consumer.session.timeout.ms", "45000", Source.DEFAULT),
    ]
    assert synonyms(shown["consumer.heartbeat.interval.ms"]) == [
        ("consumer.heartbeat.interval.ms", "6000", Source.GROUP),
        ("group.consumer.heartbeat.interval.ms", "5000", Source.DEFAULT),
    ]
    assert synonyms(shown["share.auto.offset.reset"]) == [
        ("share.auto.offset.reset", "latest", Source.DEFAULT)
    ]


def test_client_metrics():
    shown = by_name(describe_client_metrics({"interval.ms": "1000"}))
    assert synonyms(shown["interval.ms"]) == [("interval.ms", "1000", Source.CLIENT_METRICS)]
    assert (shown["match"].value.value, shown["match"].value.source) == ("", Source.DEFAULT)
    assert shown["match"].value.synonyms == ()
