"""DescribeCluster, DescribeConfigs, ListConfigResources."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.metadata.fence_broker_record import FenceBrokerRecord
from runtime.config import Source, Type
from serving.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from testkit.memory.broker import NODE, OTHER, Harness

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_cluster_is_described(version: int) -> None:
    h = Harness()
    response = h.body(DescribeClusterRequest(), version)
    assert (response.error_code, response.cluster_id) == (0, "cluster")
    assert [(b.broker_id, b.host, b.rack) for b in response.brokers] == [
        (NODE, "host1", "rack1"),
        (OTHER, "host2", "rack2"),
    ]
    assert response.controller_id in (NODE, OTHER)
    assert response.cluster_authorized_operations == NOT_ASKED
    asked = h.body(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


async def test_describe_cluster_lists_fenced_brokers_on_request_only() -> None:
    h = Harness()
    h.replay(FenceBrokerRecord(id=OTHER, epoch=102))
    assert [b.broker_id for b in h.body(DescribeClusterRequest()).brokers] == [NODE]
    asked = h.body(DescribeClusterRequest(include_fenced_brokers=True))
    assert [(b.broker_id, b.is_fenced) for b in asked.brokers] == [(NODE, False), (OTHER, True)]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_a_broker_is_no_controller_endpoint(kind: int, code: ErrorCode) -> None:
    h = Harness()
    with pytest.raises(ApiError) as caught:
        h.call(DescribeClusterRequest(endpoint_type=kind))
    assert caught.value.code is code


# --- DescribeConfigs ------------------------------------------------------------------------------


def configs(
    h: Harness, kind: int, name: str, *keys: str, version: int = 4, **fields: Any
) -> tuple[Any, dict[str, Any]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind,
        resource_name=name,
        configuration_keys=list(keys) if keys else None,
    )
    request = DescribeConfigsRequest(resources=[resource], **fields)
    (result,) = h.body(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result, {entry.name: entry for entry in result.configs}


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_a_topics_configuration_with_its_sources(version: int) -> None:
    h = Harness(log_retention_ms="5000")
    h.create_topic(configs={"segment.bytes": "2000000"})
    h.set_config("", "log.cleaner.delete.retention.ms", "7", resource_type=BROKER)
    h.set_config(str(NODE), "message.max.bytes", "999", resource_type=BROKER)
    result, entries = configs(h, TOPIC, "t", version=version, include_synonyms=True)
    assert (result.error_code, result.error_message) == (0, "")
    shown = {name: (entry.value, entry.config_source) for name, entry in entries.items()}
    assert shown["segment.bytes"] == ("2000000", Source.TOPIC)
    assert shown["retention.ms"] == ("5000", Source.STATIC_BROKER)
    assert shown["delete.retention.ms"] == ("7", Source.DYNAMIC_DEFAULT_BROKER)
    assert shown["max.message.bytes"] == ("999", Source.DYNAMIC_BROKER)
    assert shown["min.insync.replicas"] == ("1", Source.DEFAULT)
    synonyms = [(s.name, s.value, s.source) for s in entries["segment.bytes"].synonyms]
    assert synonyms == [
        ("segment.bytes", "2000000", Source.TOPIC),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]
    if version >= 3:
        assert entries["segment.bytes"].config_type == Type.INT


async def test_describe_configs_returns_requested_keys_and_documentation() -> None:
    h = Harness()
    h.create_topic()
    _, plain = configs(h, TOPIC, "t", "segment.bytes", "nope")
    assert list(plain) == ["segment.bytes"]
    assert plain["segment.bytes"].documentation is None
    assert plain["segment.bytes"].synonyms == []
    _, full = configs(h, TOPIC, "t", "segment.bytes", include_documentation=True)
    assert full["segment.bytes"].documentation


async def test_a_brokers_configuration() -> None:
    h = Harness(**{"num.io.threads": "3"})
    h.set_config("", "log.cleaner.threads", "2", resource_type=BROKER)
    _, entries = configs(h, BROKER, str(NODE))
    assert (entries["node.id"].value, entries["node.id"].read_only) == ("1", True)
    assert (entries["num.io.threads"].value, entries["num.io.threads"].read_only) == ("3", False)
    assert entries["log.cleaner.threads"].config_source == Source.DYNAMIC_DEFAULT_BROKER
    sensitive = [entry for entry in entries.values() if entry.is_sensitive]
    assert sensitive
    assert all(entry.value is None for entry in sensitive)


async def test_the_cluster_wide_default_shows_what_was_set_there() -> None:
    h = Harness()
    assert configs(h, BROKER, "")[1] == {}
    h.set_config("", "log.cleaner.threads", "2", resource_type=BROKER)
    _, entries = configs(h, BROKER, "", include_synonyms=True)
    assert [(e.name, e.value, e.config_source) for e in entries.values()] == [
        ("log.cleaner.threads", "2", Source.DYNAMIC_DEFAULT_BROKER)
    ]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_resources_that_cannot_be_described(kind: int, name: str, code: ErrorCode) -> None:
    h = Harness()
    result, entries = configs(h, kind, name)
    assert (result.error_code, entries) == (code, {})
    # Kafka has no message for a topic that does not exist.
    assert bool(result.error_message) == (code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_loggers_groups_and_client_metrics() -> None:
    h = Harness()
    _, loggers = configs(h, LOGGER, str(NODE))
    assert [(e.name, e.value) for e in loggers.values()] == [("root", "INFO")]
    h.set_config("g", "consumer.session.timeout.ms", "46000", resource_type=GROUP)
    _, group = configs(h, GROUP, "g", include_synonyms=True)
    timeout = group["consumer.session.timeout.ms"]
    assert (timeout.value, timeout.config_source) == ("46000", Source.GROUP)
    _, metrics = configs(h, CLIENT_METRICS, "m")
    assert "interval.ms" in metrics


# --- ListConfigResources --------------------------------------------------------------------------


async def test_config_resources_are_listed() -> None:
    h = Harness()
    h.create_topic("a")
    h.set_config("g", "consumer.session.timeout.ms", "46000", resource_type=GROUP)
    h.set_config("m", "interval.ms", "1000", resource_type=CLIENT_METRICS)

    def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
        response = h.body(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        return [(r.resource_type, r.resource_name) for r in response.config_resources]

    assert listed(0) == [(CLIENT_METRICS, "m")]
    assert listed(1, TOPIC, GROUP) == [(TOPIC, "a"), (GROUP, "g")]
    assert listed(1) == [
        (TOPIC, "a"),
        (BROKER, "1"),
        (BROKER, "2"),
        (LOGGER, "1"),
        (LOGGER, "2"),
        (CLIENT_METRICS, "m"),
        (GROUP, "g"),
    ]
    with pytest.raises(ApiError) as caught:
        h.call(ListConfigResourcesRequest(resource_types=[77]), 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
