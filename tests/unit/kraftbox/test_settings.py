"""Every setting of every package, with its configuration key or an entry in the list without
one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from broker.admin.auto_topics import AutoTopicSettings
from broker.controller_link.lifecycle import LifecycleTimes
from broker.coordinators.group.config import GroupConfig
from broker.metadata.topic_settings import topic_settings
from broker.replication.settings import ReplicationSettings
from broker.settings import BrokerSettings
from broker.tiering.settings import RemoteSettings
from controller.settings import ControllerSettings
from metalog.quorum.config import QuorumConfig
from runtime.config import ConfigError, NodeConfig, topic_defaults
from runtime.config.schema import NodeKey, Type
from runtime.config.tables import NODE_KEYS
from serving.listener_settings import connection_limits, server_limits
from storage.log.cleaning.cleaner import CleanerSettings
from storage.log.manager_settings import LogManagerSettings
from storage.objects import StoreSettings

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "rsm.config.url": "file:///segments",
}
ELSEWHERE: dict[str, dict[str, str]] = {
    "node.id": {"controller.quorum.voters": "2@localhost:9093"},
    "controller.listener.names": {"listeners": "PLAINTEXT://:9092,OTHER://:9093"},
    "compression.gzip.level": {"compression.type": "gzip"},
    "inter.broker.listener.name": {
        "listeners": "PLAINTEXT://:9092,SECOND://:9094,CONTROLLER://:9093",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
    },
}
"""Other keys that a key needs to take another value."""
TEXTS: dict[str, tuple[str, ...]] = {
    "node.id": ("2",),
    "controller.listener.names": ("OTHER",),
    "controller.quorum.voters": ("1@elsewhere:9093",),
    "controller.quorum.bootstrap.servers": ("elsewhere:9093",),
    "inter.broker.listener.name": ("SECOND",),
    "listeners": ("PLAINTEXT://:9094,CONTROLLER://:9095",),
    "log.cleanup.policy": ("compact",),
    "log.dirs": ("/elsewhere",),
    "max.connections.per.ip.overrides": ("127.0.0.1:7",),
    "unclean.recovery.strategy": ("Aggressive",),
    "replica.selector.class": ("org.apache.kafka.common.replica.RackAwareReplicaSelector",),
}
CHOICES = ("leader", "gzip", "LogAppendTime", "none", "x")

ROOMS: dict[str, tuple[Callable[[NodeConfig], Any], set[str]]] = {
    "a broker": (BrokerSettings.of, set()),
    "its replication": (ReplicationSettings.of, set()),
    "its groups": (GroupConfig.of, {"new_member_join_timeout_ms"}),
    "its registration": (LifecycleTimes.of, {"back_off_ms", "back_off_max_ms", "fenced_poll_ms"}),
    "topics it creates": (AutoTopicSettings.of, set()),
    "topics": (
        lambda node: topic_settings(topic_defaults(node), node),
        # Of a single topic.
        {
            *("leader_throttled", "follower_throttled", "tiered", "tier_deleted_on_disable"),
            *("log.remote_storage_enable", "log.remote_log_copy_disable"),
            "log.refuse_rot",  # of the metadata log
        },
    ),
    "the tier": (
        RemoteSettings.of,
        # Keys of the store and of the metadata topic have prefixes, and tests of their own.
        {
            *(f"store.{each.name}" for each in dataclasses.fields(StoreSettings)),
            *("metadata.partitions", "metadata.replication_factor", "metadata.min_isr"),
            *("metadata.retention_ms", "metadata.consume_wait_ms"),
        },
    ),
    "logs": (LogManagerSettings.of, set()),
    "the cleaner": (CleanerSettings.of, set()),
    "a controller": (
        lambda node: ControllerSettings.of(node, cluster_id="c", incarnation_id=b"i", features={}),
        {"cluster_id", "incarnation_id", "features", "config"},
    ),
    "the quorum": (
        lambda node: QuorumConfig.from_node_config(node, cluster_id="c", directory_id=b"d"),
        # Kafka has no key for the wait either; whether a node votes follows from its roles.
        {"cluster_id", "node.directory_id", "fetch_wait_ms_max", "votes"},
    ),
    "a connection": (server_limits, {"receive_buffer_bytes", "write_high_bytes"}),
    "all connections": (connection_limits, set()),
}


def other_texts(key: NodeKey[Any]) -> Iterator[str]:
    """Return texts that may differ from the default, the best candidate first."""
    yield from TEXTS.get(key.name, ())
    default = key.default
    if key.type is Type.BOOLEAN:
        yield "false" if default else "true"
    elif key.type is Type.DOUBLE:
        yield "0.25"
    elif key.type in (Type.INT, Type.LONG, Type.SHORT):
        if default:
            yield from (str(default - 1), str(default * 2))
        yield from ("1", "2", "9000000")
    else:
        yield from CHOICES


def another(key: NodeKey[Any]) -> NodeConfig | None:
    """Return a configuration with another value of the key, or None if no value is found."""
    for text in other_texts(key):
        try:
            return NodeConfig.parse({**BASE, key.name: text, **ELSEWHERE.get(key.name, {})})
        except ConfigError:
            continue
    return None


def fields(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Return the fields of a settings value; those of nested values are prefixed with their
    names."""
    inside: Mapping[str, Any] | None = None
    if dataclasses.is_dataclass(value):
        inside = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        inside = value._asdict()
    if inside is None:
        yield name, value
    else:
        for field, each in inside.items():
            yield from fields(each, f"{name}.{field}" if name else field)


def taken_by(make: Callable[[NodeConfig], Any], config: NodeConfig) -> list[tuple[str, Any]]:
    """Return a package's fields, or none if it refuses the configuration."""
    try:
        return list(fields(make(config)))
    except ConfigError:
        return []


@pytest.fixture(scope="module")
def others() -> list[NodeConfig]:
    found = (another(key) for key in NODE_KEYS.values())
    return [config for config in found if config is not None]


@pytest.mark.parametrize("room", ROOMS)
def test_every_setting_follows_a_key(room: str, others: list[NodeConfig]) -> None:
    make, without_key = ROOMS[room]
    before = dict(fields(make(NodeConfig.parse(BASE))))
    follow = {
        name for config in others for name, value in taken_by(make, config) if value != before[name]
    }
    assert sorted(before.keys() - follow - without_key) == []
    assert sorted(without_key & follow - {"config"}) == []
