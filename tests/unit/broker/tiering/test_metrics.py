"""Series of tiered storage, by topic and in total, and their documentation."""

from __future__ import annotations

import random
import re
from pathlib import Path

from broker.tiering.counters import BuildCounters, TopicCounters
from broker.tiering.led import Led
from broker.tiering.metrics import TierMetrics
from broker.tiering.reader import ReadCounters
from broker.tiering.settings import RemoteSettings
from broker.tiering.tasks import TierTasks
from runtime.clock import ManualClock
from runtime.tasks import Supervisor
from storage.objects import MemoryObjects
from storage.tiered.segment_store import SegmentStore
from testkit.memory.node_config import node
from testkit.memory.tier_brokers import TierBroker, TierWorld
from testkit.records.tier import PARTITION

DOCUMENT = Path(__file__).parents[4] / "docs" / "metrics.md"
TIERING = {
    "remote_log_storage_system_enable": "true",
    "rsm_config_url": "file:///tier",
}
PREFIX = "kafka_server_brokertopicmetrics_"


def tasks_of(broker: TierBroker) -> TierTasks:
    settings = RemoteSettings.of(node(**TIERING))

    async def save() -> None:
        return

    return TierTasks(
        node_id=1,
        metadata=broker,
        store=SegmentStore(MemoryObjects()),
        settings=lambda: settings,
        save_log_starts=save,
        supervisor=Supervisor(),
        clock=ManualClock(),
        rng=random.Random(1),
    )


async def test_series_by_topic_and_in_all() -> None:
    world = TierWorld()
    tasks = tasks_of(world.broker())
    tasks.counters = {"a": TopicCounters(copy_bytes=3), "b": TopicCounters(copy_bytes=4)}
    for number, topic in enumerate("aab"):
        partition = PARTITION._replace(topic=topic, partition=number)
        led = Led(world.brokers[0].replica, partition, tasks.counters[topic])
        led.backlog.copy_segments = 10
        tasks.leading[partition.identity] = led
    reads = {"a": ReadCounters(requests=1, errors=2, bytes=5)}
    builds = {"b": BuildCounters(requests=8, errors=7)}
    metrics = TierMetrics(tasks, reads=lambda: reads, builds=lambda: builds, removals=lambda: 6)
    found = {
        (family.name, str(labels)): value
        for family in metrics.collect()
        for labels, value in family.samples
    }
    copied = PREFIX + "remotecopybytes_total"
    assert [found[copied, key] for key in ("{}", "{'topic': 'a'}", "{'topic': 'b'}")] == [7, 3, 4]
    lag = PREFIX + "remotecopylagsegments"
    assert [found[lag, key] for key in ("{}", "{'topic': 'a'}", "{'topic': 'b'}")] == [30, 20, 10]
    assert found[PREFIX + "remotefetcherrors_total", "{'topic': 'a'}"] == 2
    assert found[PREFIX + "buildremotelogauxstaterequests_total", "{}"] == 8
    assert found[PREFIX + "buildremotelogauxstateerrors_total", "{'topic': 'b'}"] == 7
    assert found["kraftbox_tier_partition_removals", "{}"] == 6
    await world.close()


async def test_every_series_is_written_down() -> None:
    world = TierWorld()
    metrics = TierMetrics(tasks_of(world.broker()), reads=dict, builds=dict, removals=int)
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text[text.index("**Tiered storage.**") : text.index("**Request memory.**")]
    written = set(re.findall(r"\b(?:build|kafka|kraftbox|remote)[a-z_]+", section))
    for family in metrics.collect():
        assert {family.name, family.name.removeprefix(PREFIX)} & written, family.name
    await world.close()
