"""Every key that can change at runtime: it takes effect at once, or a reason for no effect is
listed.

The values are set over the wire on a whole node, and read where they have their effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.assembly import BrokerServer
from controller.configs.topic_settings import (
    RecoveryStrategy,
    min_isr_of,
    recovery_manager_enabled,
    recovery_strategy,
    recovery_timeout_ms,
)
from kraftbox.node import Node
from protocol.api_keys import ApiKey
from protocol.batch.header import TimestampType
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.transport.client import Connection
from runtime.config.dynamic import NOT_BUILT
from runtime.config.schema import Dynamic
from runtime.config.tables import BROKER_DYNAMIC_KEYS, NODE_KEYS
from runtime.config.without_effect import WITHOUT_EFFECT
from testkit.memory.metric_traffic import connect, create_topic
from testkit.memory.node import running_node
from testkit.memory.turns import until

BROKER = 4
TOPIC = "t"

Probe = Callable[[BrokerServer], Any]


def of_log(name: str) -> Probe:
    """Read a value of a partition's open log."""
    return lambda broker: getattr(_log(broker).config, name)


def _log(broker: BrokerServer) -> Any:
    log = broker.logs.get(TOPIC, 0)
    assert log is not None
    return log


def of_rules(name: str) -> Probe:
    """Read a value of the rules for appends."""
    return lambda broker: getattr(broker.settings.of(TOPIC).rules, name)


def of_local_log(name: str) -> Probe:
    """Read a value of the local log's thresholds."""
    return lambda broker: getattr(broker.settings.of(TOPIC).local_log, name)


def of_cleaner(name: str) -> Probe:
    return lambda broker: getattr(broker.cleaner._settings(), name)


def of_gate(name: str) -> Probe:
    return lambda broker: getattr(broker._gate.limits, name)


def skips_tiered(broker: BrokerServer) -> bool:
    assert broker.replication is not None
    return broker.replication.skips_tiered


def hints(broker: BrokerServer) -> bool:
    """Return whether a refused produce names the leader."""
    produce: Any = broker._table.entries[ApiKey.PRODUCE].handler
    return produce.__self__.hints.enabled


ACT: dict[str, tuple[str, Any, Probe]] = {
    "compression.gzip.level": ("9", 9, of_rules("compression_level")),
    "compression.lz4.level": ("3", 3, of_rules("compression_level")),
    "compression.type": ("zstd", Codec.ZSTD, of_rules("compression")),
    "compression.zstd.level": ("7", 7, of_rules("compression_level")),
    "follower.fetch.last.tiered.offset.enable": ("true", True, skips_tiered),
    "kraftbox.leader.discovery.enable": ("false", False, hints),
    "leader.election.eligible.local.log.bytes": ("77", 77, of_local_log("size_bytes")),
    "leader.election.eligible.local.log.ms": ("77", 77, of_local_log("span_ms")),
    "log.cleaner.backoff.ms": ("77", 77, of_cleaner("backoff_ms")),
    "log.cleaner.dedupe.buffer.size": ("70000000", 70_000_000, of_cleaner("dedupe_buffer_bytes")),
    "log.cleaner.delete.retention.ms": ("77", 77, of_log("delete_retention_ms")),
    "log.cleaner.io.buffer.load.factor": ("0.5", 0.5, of_cleaner("load_factor")),
    "log.cleaner.io.max.bytes.per.second": ("77", 77.0, of_cleaner("bytes_per_second")),
    "log.cleaner.max.compaction.lag.ms": ("77", 77, of_log("max_compaction_lag_ms")),
    "log.cleaner.min.cleanable.ratio": ("0.1", 0.1, of_log("min_cleanable_dirty_ratio")),
    "log.cleaner.min.compaction.lag.ms": ("77", 77, of_log("min_compaction_lag_ms")),
    "log.cleaner.threads": ("2", 2, of_cleaner("threads")),
    "log.cleanup.policy": ("compact", True, of_rules("compacted")),
    "log.flush.interval.messages": ("77", 77, of_log("flush_messages")),
    "log.flush.interval.ms": ("77", 77, of_log("flush_ms")),
    "log.index.interval.bytes": ("77", 77, of_log("index_interval_bytes")),
    "log.index.size.max.bytes": ("770", 770, of_log("segment_index_bytes")),
    "log.message.timestamp.after.max.ms": ("77", 77, of_rules("timestamp_after_max_ms")),
    "log.message.timestamp.before.max.ms": ("77", 77, of_rules("timestamp_before_max_ms")),
    "log.message.timestamp.type": (
        "LogAppendTime",
        TimestampType.LOG_APPEND_TIME,
        of_rules("timestamp_type"),
    ),
    "log.remote.copy.lag.bytes": ("77", 77, of_log("remote_copy_lag_bytes")),
    "log.remote.copy.lag.ms": ("77", 77, of_log("remote_copy_lag_ms")),
    "log.retention.bytes": ("77", 77, of_log("retention_bytes")),
    "log.retention.ms": ("77", 77, of_log("retention_ms")),
    "log.roll.jitter.ms": ("77", 77, of_log("segment_jitter_ms")),
    "log.roll.ms": ("77", 77, of_log("segment_ms")),
    "log.segment.bytes": ("1048577", 1_048_577, of_log("segment_bytes")),
    "log.segment.delete.delay.ms": ("77", 77, of_log("file_delete_delay_ms")),
    "max.connection.creation.rate": ("77", 77, of_gate("rate_max")),
    "max.connections": ("77", 77, of_gate("connections_max")),
    "max.connections.per.ip": ("77", 77, of_gate("per_ip_max")),
    "max.connections.per.ip.overrides": (
        "10.0.0.1:7",
        {"10.0.0.1": 7},
        of_gate("per_ip_overrides"),
    ),
    "max.decompressed.message.bytes": ("77", 77, of_rules("record_bytes_max")),
    "message.max.bytes": ("77", 77, of_rules("max_message_bytes")),
    "min.insync.replicas": ("2", 2, lambda broker: broker.settings.of(TOPIC).min_isr),
    "num.replica.fetchers": ("2", 2, lambda broker: broker.replication.fetchers._per_leader),
    "producer.id.expiration.ms": ("77", 77, lambda broker: _log(broker).producers.expiration_ms),
}

WITH = {
    "compression.gzip.level": ("compression.type", "gzip"),
    "compression.lz4.level": ("compression.type", "lz4"),
    "compression.zstd.level": ("compression.type", "zstd"),
}
"""Other settings that a key needs to have an effect."""

ELSEWHERE = {
    "unclean.leader.election.enable": "a controller's: see the test below",
    "unclean.recovery.manager.enabled": "a controller's: see the test below",
    "unclean.recovery.strategy": "a controller's: see the test below",
    "unclean.recovery.timeout.ms": "a controller's: see the test below",
    "follower.replication.throttled.rate": "takes a second broker",
    "leader.replication.throttled.rate": "takes a second broker",
    "log.local.retention.bytes": "takes tiered storage",
    "log.local.retention.ms": "takes tiered storage",
    "remote.fetch.max.wait.ms": "takes tiered storage",
    "remote.list.offsets.request.timeout.ms": "takes tiered storage",
    "remote.log.index.file.cache.total.size.bytes": "takes tiered storage",
    "remote.log.manager.copier.thread.pool.size": "takes tiered storage",
    "remote.log.manager.copy.max.bytes.per.second": "takes tiered storage",
    "remote.log.manager.expiration.thread.pool.size": "takes tiered storage",
    "remote.log.manager.fetch.max.bytes.per.second": "takes tiered storage",
    "remote.log.manager.follower.thread.pool.size": "takes tiered storage",
    "remote.log.reader.threads": "takes tiered storage",
}


async def alter(connection: Connection, name: str, *pairs: tuple[str, str | None]) -> list[int]:
    """Set keys of broker `name` (empty: of all), or remove those without a value."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, value=value, config_operation=0 if value is not None else 1
            )
            for key, value in pairs
        ],
    )
    reply = await connection.request(IncrementalAlterConfigsRequest(resources=[resource]))
    return [each.error_code for each in reply.responses]


def test_every_dynamic_key_is_dealt_with() -> None:
    dynamic = {
        name
        for name, key in {**NODE_KEYS, **BROKER_DYNAMIC_KEYS}.items()
        if key.dynamic is not Dynamic.READ_ONLY
    }
    idle = (
        dynamic & {name for names in WITHOUT_EFFECT.values() for name in names} - NOT_BUILT.keys()
    )
    groups = [ACT.keys(), ELSEWHERE.keys(), idle, NOT_BUILT.keys()]
    assert sum(map(len, groups)) == len(dynamic)
    assert set().union(*groups) == dynamic


KEPT = {"min.insync.replicas": "1"}
"""With eligible leader replicas the cluster-level value is reset, not removed."""


async def test_each_counts_at_once_and_no_longer_when_it_is_removed() -> None:
    async with running_node() as node:
        connection = await connect(node)
        await create_topic(connection, TOPIC)
        broker = node.broker
        assert broker is not None
        for key, (value, expected, probe) in ACT.items():
            pairs = [(key, value), *([WITH[key]] if key in WITH else [])]
            before = probe(broker)
            assert before != expected, key
            assert await alter(connection, "", *pairs) == [ErrorCode.NONE], key
            await until(lambda probe=probe, expected=expected: probe(broker) == expected)
            removed = [(name, KEPT.get(name)) for name, _ in pairs]
            assert await alter(connection, "", *removed) == [ErrorCode.NONE], key
            await until(lambda probe=probe, before=before: probe(broker) == before)
        await connection.close()


async def test_controller_applies_dynamic_keys() -> None:
    async with running_node() as node:
        connection = await connect(node)
        await create_topic(connection, TOPIC)

        def view() -> Any:
            assert node.controller is not None
            return node.controller.controller.view()

        assert recovery_strategy(view(), TOPIC) is RecoveryStrategy.BALANCED
        settings = (("unclean.leader.election.enable", "true"), ("min.insync.replicas", "3"))
        assert await alter(connection, "", *settings) == [ErrorCode.NONE]
        assert recovery_strategy(view(), TOPIC) is RecoveryStrategy.AGGRESSIVE
        assert min_isr_of(view(), TOPIC) == 3
        settings = (
            ("unclean.recovery.strategy", "None"),
            ("unclean.recovery.manager.enabled", "true"),
            ("unclean.recovery.timeout.ms", "77"),
        )
        assert await alter(connection, "", *settings) == [ErrorCode.NONE]
        assert recovery_strategy(view(), TOPIC) is RecoveryStrategy.NONE
        assert recovery_manager_enabled(view())
        assert recovery_timeout_ms(view()) == 77
        await connection.close()


@pytest.mark.parametrize("key", sorted(NOT_BUILT))
async def test_unsupported_dynamic_key_is_refused(key: str) -> None:
    async with running_node() as node:
        connection = await connect(node)
        assert await alter(connection, "1", (key, "x")) == [ErrorCode.INVALID_REQUEST]
        await connection.close()


async def test_node_value_overrides_default_and_other_nodes_values_are_ignored() -> None:
    async with running_node() as node:
        connection = await connect(node)
        assert await alter(connection, "", ("max.connections", "50")) == [ErrorCode.NONE]
        assert await alter(connection, "1", ("max.connections", "60")) == [ErrorCode.NONE]
        await _until_limit(node, 60)
        assert await alter(connection, "1", ("max.connections", None)) == [ErrorCode.NONE]
        await _until_limit(node, 50)
        assert await alter(connection, "2", ("max.connections", "70")) == [
            ErrorCode.INVALID_REQUEST
        ]
        await connection.close()


async def _until_limit(node: Node, expected: int) -> None:
    assert node.broker is not None
    gate = node.broker._gate
    await until(lambda: gate.limits.connections_max == expected)
