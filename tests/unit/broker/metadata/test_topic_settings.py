"""Topic settings of the data path, derived from configuration."""

from __future__ import annotations

import pytest
from immutables import Map

from broker.metadata.topic_settings import CACHED_MAX
from metalog.image.values import EMPTY_IMAGE, ConfigResourceType
from protocol.batch.header import TimestampType
from protocol.compression import Codec
from testkit.memory.broker import Harness

BROKER = 4


async def test_topics_without_overrides_share_one_value() -> None:
    h = Harness()
    h.create_topic("a", number=1)
    h.create_topic("b", number=2)
    assert h.settings.of("a") is h.settings.of("b") is h.settings.of("unknown")


async def test_settings_cache_is_bounded() -> None:
    h = Harness()
    for number in range(2 * CACHED_MAX):
        name = f"t{number}"
        h.settings._image = EMPTY_IMAGE._replace(
            configs=Map({(ConfigResourceType.TOPIC, name): Map({"retention.ms": str(number)})})
        )
        assert h.settings.of(name).log.retention_ms == number
    assert len(h.settings._by_overrides) <= CACHED_MAX


async def test_the_defaults_are_kafkas() -> None:
    settings = Harness().settings.of("t")
    assert settings.log.segment_bytes == 1 << 30
    assert settings.log.retention_ms == 7 * 24 * 3_600_000
    assert settings.rules.max_message_bytes == 1_048_588
    assert settings.rules.timestamp_type is TimestampType.CREATE_TIME
    assert settings.rules.timestamp_after_max_ms == 3_600_000
    assert settings.rules.compression is None
    assert (settings.min_isr, settings.compacted, settings.deletes) == (1, False, True)


async def test_a_topics_own_values_win() -> None:
    h = Harness(min_insync_replicas="2")
    h.create_topic(
        configs={
            "cleanup.policy": "compact,delete",
            "min.insync.replicas": "3",
            "message.timestamp.type": "LogAppendTime",
            "retention.bytes": "77",
        }
    )
    settings = h.settings.of("t")
    assert (settings.min_isr, settings.compacted, settings.deletes) == (3, True, True)
    assert settings.rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert settings.rules.compacted
    assert settings.log.retention_bytes == 77
    assert h.settings.of("other").min_isr == 2


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", Codec.NONE, None),
        ("gzip", Codec.GZIP, -1),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, 9),
        ("zstd", Codec.ZSTD, 3),
    ],
)
async def test_compression(name: str, codec: Codec | None, level: int | None) -> None:
    h = Harness()
    h.create_topic(configs={"compression.type": name})
    rules = h.settings.of("t").rules
    assert (rules.compression, rules.compression_level) == (codec, level)


async def test_dynamic_values_of_the_cluster_and_of_this_broker() -> None:
    h = Harness()
    h.create_topic()
    h.set_config("", "message.max.bytes", "1000", resource_type=BROKER)
    assert h.settings.of("t").rules.max_message_bytes == 1000
    h.set_config("1", "message.max.bytes", "2000", resource_type=BROKER)
    assert h.settings.of("t").rules.max_message_bytes == 2000
    h.set_config("2", "message.max.bytes", "3000", resource_type=BROKER)
    assert h.settings.of("t").rules.max_message_bytes == 2000
    h.set_config("1", "message.max.bytes", None, resource_type=BROKER)
    h.set_config("", "message.max.bytes", None, resource_type=BROKER)
    assert h.settings.of("t").rules.max_message_bytes == 1_048_588
    assert h.settings.effective_node is h.config


async def test_a_dynamic_value_that_is_not_understood_changes_nothing() -> None:
    h = Harness()
    h.create_topic()
    h.set_config("", "message.max.bytes", "many", resource_type=BROKER)
    assert h.settings.of("t").rules.max_message_bytes == 1_048_588


async def test_validate_records_setting_walks_every_record() -> None:
    h = Harness(kraftbox_produce_validate_records="true")
    assert h.settings.of("t").rules.always_walk


async def test_local_log_threshold_of_topic_overrides_cluster() -> None:
    h = Harness()
    time, size = "leader.election.eligible.local.log.ms", "leader.election.eligible.local.log.bytes"
    h.create_topic("own", number=1, configs={time: "5"})
    h.create_topic("off", number=2, configs={time: "-1", size: "0"})
    h.create_topic("plain", number=3)
    assert [h.settings.of(name).local_log.on for name in ("own", "off", "plain")] == [
        True,
        False,
        False,
    ]
    h.set_config("", time, "600000", resource_type=BROKER)
    h.set_config("", size, "9", resource_type=BROKER)
    assert h.settings.of("own").local_log == (5, 9)
    assert h.settings.of("off").local_log == (-1, 0)
    assert h.settings.of("plain").local_log == (600_000, 9)
    for key in (time, size):
        h.set_config("", key, None, resource_type=BROKER)
    assert not h.settings.of("plain").local_log.on
