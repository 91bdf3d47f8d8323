"""Settings of tiered storage, derived from a node's configuration."""

from __future__ import annotations

import pytest

from broker.tiering.settings import RemoteSettings
from runtime.config import ConfigError, NodeConfig
from runtime.errors import StartupRefused
from storage.files import MemoryFiles
from storage.objects import MemoryObjects, Objects, StoreSettings
from testkit.memory.node import PROPERTIES, make_node, running_node

ON = {
    "remote.log.storage.system.enable": "true",
}
STORE = {"rsm.config.url": "s3://bucket/prefix"}


def settings(**given: str) -> RemoteSettings:
    return RemoteSettings.of(NodeConfig.parse({**PROPERTIES, **STORE, **ON, **given}))


def test_the_metadata_topic_has_kafkas_defaults() -> None:
    topic = settings().metadata
    assert (topic.partitions, topic.replication_factor, topic.min_isr) == (50, 3, 2)
    assert (topic.retention_ms, topic.consume_wait_ms) == (-1, 120_000)
    assert topic.listener == "PLAINTEXT"


def test_prefixes_can_be_others() -> None:
    given = settings(
        **{
            "remote.log.storage.manager.impl.prefix": "store.",
            "store.url": "file:///segments",
            "remote.log.metadata.manager.impl.prefix": "topic.",
            "topic.remote.log.metadata.topic.num.partitions": "3",
        }
    )
    assert given.store.url == "file:///segments"
    assert given.metadata.partitions == 3


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("rsm.config.url", "ftp://bucket"),
        ("remote.log.storage.manager.class.name", "org.example.Store"),
        ("remote.log.metadata.manager.class.name", "org.example.Metadata"),
        ("rlmm.config.remote.log.metadata.topic.num.partitions", "0"),
        ("rlmm.config.remote.log.metadata.topic.retention.ms", "often"),
    ],
)
def test_invalid_settings_are_named(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(**{key: text})
    assert caught.value.key == key


async def test_a_node_opens_the_store_it_was_given_a_way_to() -> None:
    opened: list[str] = []

    def open_objects(given: StoreSettings) -> Objects:
        opened.append(given.url)
        return MemoryObjects()

    async with running_node(settings={**ON, **STORE}, open_objects=open_objects) as node:
        assert node.broker is not None
        assert node.broker.context is not None
        assert node.broker.context.tier is not None
    assert opened == ["s3://bucket/prefix"]


async def test_a_node_without_tiered_storage_has_no_tier() -> None:
    async with running_node() as node:
        assert node.broker is not None
        assert node.broker.context is not None
        assert node.broker.context.tier is None


async def test_a_broker_without_a_store_does_not_start() -> None:
    node = make_node(MemoryFiles(), ON)
    with pytest.raises(StartupRefused, match=r"rsm\.config\.url"):
        await node.start()
    await node.stop()
