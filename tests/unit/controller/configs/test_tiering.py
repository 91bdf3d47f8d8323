"""Tiered topics at the controller: creation, changes, and refusals with INVALID_CONFIG and a
reason."""

from __future__ import annotations

import pytest

from controller.configs.change import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceChange,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from controller.topics.create import decide_create_topics
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.metadata.config_record import ConfigRecord
from testkit.memory.controller import Cluster

ENABLE, DELETE_ON_DISABLE = "remote.storage.enable", "remote.log.delete.on.disable"
SYSTEM = {
    "remote_log_storage_system_enable": "true",
    "rsm_config_url": "file:///tier",
}
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE


def cluster_with(**properties: str) -> Cluster:
    cluster = Cluster(**properties)
    cluster.start(1)
    return cluster


@pytest.fixture
def cluster() -> Cluster:
    return cluster_with(**SYSTEM)


def create(cluster: Cluster, name: str, **configs: str) -> str:
    """Create a topic. Returns: the error message; empty if the topic was created."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic])
    (outcome,) = cluster.run(lambda view: decide_create_topics(view, request))
    return said(outcome.result if isinstance(outcome.result, ApiError) else None)


def said(error: ApiError | None) -> str:
    if error is None:
        return ""
    assert error.code is ErrorCode.INVALID_CONFIG
    return str(error)


def alter(cluster: Cluster, *changes: tuple[str, int, str | None]) -> str:
    request = [change(changes)]
    (outcome,) = cluster.run(
        lambda view: decide_incremental_alter_configs(view, request, validate_only=False)
    )
    return said(outcome.error)


def replace_all(cluster: Cluster, **values: str) -> str:
    request = [change([(key.replace("_", "."), SET, text) for key, text in values.items()])]
    (outcome,) = cluster.run(lambda view: decide_alter_configs(view, request, validate_only=False))
    return said(outcome.error)


def change(changes: list[tuple[str, int, str | None]] | tuple[tuple[str, int, str | None], ...]):
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    return ResourceChange(topic, tuple(ConfigChange(*one) for one in changes))


def values(cluster: Cluster) -> dict[str, str]:
    return dict(cluster.image.configs.get((int(ConfigResourceType.TOPIC), "t"), {}))


def test_a_tiered_topic_is_created(cluster: Cluster) -> None:
    assert create(cluster, "t", remote_storage_enable="true", local_retention_ms="1000") == ""
    assert values(cluster)[ENABLE] == "true"


def test_not_while_the_system_is_off() -> None:
    cluster = cluster_with()
    reason = create(cluster, "t", remote_storage_enable="true")
    assert "remote.log.storage.system.enable=false" in reason
    assert create(cluster, "t", remote_storage_enable="false", local_retention_ms="1") == ""
    assert "tiered storage is off" in alter(cluster, (ENABLE, SET, "true"))


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "__transaction_state", "__remote_log_metadata"]
)
def test_topics_of_the_brokers_are_never_tiered(cluster: Cluster, name: str) -> None:
    assert f"{name} cannot be tiered" in create(cluster, name, remote_storage_enable="true")
    assert create(cluster, name) == ""


def test_compaction_and_tiering_exclude_each_other(cluster: Cluster) -> None:
    policy = "cleanup.policy"
    assert policy in create(cluster, "t", remote_storage_enable="true", cleanup_policy="compact")
    assert create(cluster, "t", remote_storage_enable="true") == ""
    assert policy in alter(cluster, (policy, SET, "compact,delete"))
    assert policy in alter(cluster, (policy, ConfigOperation.APPEND, "compact"))
    assert policy not in values(cluster)


def test_values_that_are_there_judge_the_one_that_comes(cluster: Cluster) -> None:
    create(cluster, "t", remote_storage_enable="true", local_retention_ms="1000")
    assert "retention.ms=999" in alter(cluster, ("retention.ms", SET, "999"))
    assert "local.retention.ms" in alter(cluster, ("remote.log.copy.disable", SET, "true"))
    whole = [("local.retention.ms", DELETE, None), ("remote.log.copy.disable", SET, "true")]
    assert alter(cluster, *whole) == ""
    assert "local.retention.ms" in alter(cluster, ("local.retention.ms", SET, "5"))


@pytest.mark.parametrize("turn_off", [(ENABLE, SET, "false"), (ENABLE, DELETE, None)])
def test_turning_it_off_needs_the_word_to_delete(
    cluster: Cluster, turn_off: tuple[str, int, str | None]
) -> None:
    create(cluster, "t", remote_storage_enable="true")
    assert f"{DELETE_ON_DISABLE}=true" in alter(cluster, turn_off)
    assert values(cluster)[ENABLE] == "true"
    assert alter(cluster, turn_off, (DELETE_ON_DISABLE, SET, "true")) == ""
    assert values(cluster).get(ENABLE) in (None, "false")


def test_replacing_all_values_turns_it_off_too(cluster: Cluster) -> None:
    create(cluster, "t", remote_storage_enable="true")
    assert DELETE_ON_DISABLE in replace_all(cluster, retention_ms="5")
    assert replace_all(cluster, retention_ms="5", remote_log_delete_on_disable="true") == ""


def test_invalid_stored_tiering_does_not_block_other_keys() -> None:
    """The topic dates from a time when the system was enabled: its other values can still
    change."""
    cluster = cluster_with()
    create(cluster, "t")
    old = ConfigRecord(
        resource_type=int(ConfigResourceType.TOPIC), resource_name="t", name=ENABLE, value="true"
    )
    cluster.apply([old])
    assert alter(cluster, ("retention.ms", SET, "5")) == ""
    assert "cleanup.policy" not in values(cluster)
    assert alter(cluster, (ENABLE, SET, "false"), (DELETE_ON_DISABLE, SET, "true")) == ""
