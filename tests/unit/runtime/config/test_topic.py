import pytest

from runtime.config import (
    ConfigError,
    Source,
    UnknownKey,
    effective_node_config,
    effective_topic_config,
    keys_topic,
    topic_defaults,
    validate_topic_config,
)
from runtime.config.dynamic import check_broker_values
from testkit.memory.node_config import node


def test_a_topic_takes_the_nodes_values_in_the_topics_units():
    defaults = topic_defaults(node(log_retention_hours="2", log_segment_bytes="2000000"))
    assert defaults[keys_topic.RETENTION_MS] == 7_200_000
    assert defaults.segment_bytes == 2_000_000
    assert defaults[keys_topic.FLUSH_MS] == 2**63 - 1
    assert defaults.deletes_old and not defaults.is_compacted


def test_overrides_win_and_unreadable_ones_are_left_out():
    config = topic_defaults(node()).with_overrides(
        {"segment.bytes": "1048576", "retention.ms": "soon", "new.key": "1"}
    )
    assert config.segment_bytes == 1_048_576
    assert config[keys_topic.RETENTION_MS] == 604_800_000


def test_sources_and_synonyms_in_kafkas_order():
    values = effective_topic_config(
        node(min_insync_replicas="2"),
        topic={"min.insync.replicas": "5"},
        cluster_dynamic={"min.insync.replicas": "3"},
        broker_dynamic={"min.insync.replicas": "4"},
    )
    got = values["min.insync.replicas"]
    assert (got.value, got.source) == ("5", Source.TOPIC)
    assert [(synonym.value, synonym.source) for synonym in got.synonyms] == [
        ("5", Source.TOPIC),
        ("4", Source.DYNAMIC_BROKER),
        ("3", Source.DYNAMIC_DEFAULT_BROKER),
        ("2", Source.STATIC_BROKER),
        ("1", Source.DEFAULT),
    ]


def test_a_key_without_default_lists_no_fallback_synonym():
    values = effective_topic_config(node(log_retention_hours="2"), topic={})
    assert values["retention.ms"].value == "7200000"
    assert values["retention.ms"].source is Source.DEFAULT
    assert values["retention.ms"].synonyms == ()
    named = effective_topic_config(node(log_retention_ms="9"), topic={})["retention.ms"]
    assert [synonym.name for synonym in named.synonyms] == [
        "log.retention.ms",
        "log.retention.hours",
    ]


def test_dynamic_defaults_reach_topics():
    values = effective_topic_config(node(), topic={}, cluster_dynamic={"log.retention.ms": "7"})
    assert values["retention.ms"].value == "7"
    assert values["retention.ms"].source is Source.DYNAMIC_DEFAULT_BROKER


def test_broker_values_hide_secrets_and_internal_keys():
    values = effective_node_config(
        node(ssl_key_password="x"), broker_dynamic={"leader.replication.throttled.rate": "10"}
    )
    assert values["ssl.key.password"].value is None
    assert values["ssl.key.password"].synonyms[0].value is None
    assert "unstable.api.versions.enable" not in values
    assert values["leader.replication.throttled.rate"].source is Source.DYNAMIC_BROKER
    assert values["node.id"].source is Source.STATIC_BROKER


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"segment.bytes": "10"}, "segment.bytes"),
        ({"cleanup.policy": "compact,drop"}, "cleanup.policy"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "min.compaction.lag.ms"),
        ({"leader.replication.throttled.replicas": "1-2"}, "leader.replication.throttled.replicas"),
    ],
)
def test_bad_topic_values_are_refused(overrides, key):
    with pytest.raises(ConfigError) as caught:
        validate_topic_config(overrides, topic_defaults(node()))
    assert caught.value.key == key


def test_unknown_topic_keys_are_refused():
    with pytest.raises(UnknownKey):
        validate_topic_config({"log.retention.ms": "1"}, topic_defaults(node()))


def test_good_topic_values_pass():
    validate_topic_config(
        {"cleanup.policy": "compact,delete", "follower.replication.throttled.replicas": "*"},
        topic_defaults(node()),
    )


@pytest.mark.parametrize("key", ["ms", "bytes"])
def test_a_threshold_of_the_local_log_is_minus_one_or_more(key):
    """KIP-1303: -1 and 0 disable the threshold, larger values enable it, smaller ones are
    refused."""
    name = f"leader.election.eligible.local.log.{key}"
    said = f"^{name}=-2: must be an integer of at least -1$"
    for text in ("-1", "0", "600000", str(2**63 - 1)):
        validate_topic_config({name: text}, topic_defaults(node()))
        check_broker_values([(name, text)], for_all=True)
    with pytest.raises(ConfigError, match=said):
        validate_topic_config({name: "-2"}, topic_defaults(node()))
    with pytest.raises(ConfigError, match=said):
        check_broker_values([(name, "-2")], for_all=True)
    with pytest.raises(ConfigError, match=said):
        node(**{name.replace(".", "_"): "-2"})
