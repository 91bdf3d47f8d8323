"""The series of every partition, which a scrape reuses from the one before."""

from typing import Any

import pytest

from broker.metrics import partition_series
from broker.metrics.partition_series import PartitionSeries
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from runtime.metrics import Metrics
from testkit.memory.broker import Harness


def partitions_of(harness: Harness) -> list[Partition]:
    return list(harness.context.replicas)


def scraped(series: PartitionSeries, partitions: list[Partition]) -> str:
    metrics = Metrics()
    metrics.register(lambda: series.families(partitions))
    return b"".join(metrics.exposition(process=False)).decode()


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_series, "GROUP", 2)


def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the metrics whose lines are written from now on, one for each group."""
    names: list[str] = []
    write = partition_series.series_lines

    def noting(name: str, *arguments: Any) -> list[str]:
        names.append(name)
        return write(name, *arguments)

    monkeypatch.setattr(partition_series, "series_lines", noting)
    return names


async def test_a_scrape_writes_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    harness.create_topic(partitions=5)
    partitions, series = partitions_of(harness), PartitionSeries()
    first = scraped(series, partitions)
    assert 'kafka_log_log_logendoffset{topic="t",partition="4"} 0\n' in first
    assert 'kafka_cluster_partition_atminisr{topic="t",partition="4"} 1\n' in first
    names = written(monkeypatch)
    assert scraped(series, partitions) == first
    assert names == []
    partitions[3].log.bounds.log_start_offset = 7
    assert scraped(series, partitions) == first.replace(
        'logstartoffset{topic="t",partition="3"} 0', 'logstartoffset{topic="t",partition="3"} 7'
    )
    assert names == ["kafka_log_log_logstartoffset"]


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("isr", frozenset({1, 2})),
        ("replicas", (1, 2, 3)),
        ("min_isr", 0),
        ("elr", (3,)),
        ("role", ReplicaRole.FOLLOWER),
    ],
)
async def test_each_fact_of_a_state_is_seen(fact: str, value: Any) -> None:
    harness = Harness()
    harness.create_topic(partitions=5)
    partitions, series = partitions_of(harness), PartitionSeries()
    before = scraped(series, partitions)
    setattr(partitions[3], fact, value)
    assert scraped(series, partitions) == scraped(PartitionSeries(), partitions) != before


async def test_partitions_that_go_take_their_series_with_them() -> None:
    harness = Harness()
    harness.create_topic(partitions=5)
    partitions, series = partitions_of(harness), PartitionSeries()
    scraped(series, partitions)
    del partitions[1]
    assert scraped(series, partitions) == scraped(PartitionSeries(), partitions)
    assert scraped(series, []).count("{") == 0


async def test_follower_has_no_leader_series() -> None:
    harness = Harness()
    harness.create_topic(partitions=3)
    partitions, series = partitions_of(harness), PartitionSeries()
    scraped(series, partitions)
    partitions[0].role = ReplicaRole.FOLLOWER
    text = scraped(series, partitions)
    assert 'kafka_log_log_size{topic="t",partition="0"}' in text
    assert 'kafka_cluster_partition_replicascount{topic="t",partition="0"}' not in text
    assert text == scraped(PartitionSeries(), partitions)
    partitions[0].role = ReplicaRole.LEADER
    assert scraped(series, partitions) == scraped(PartitionSeries(), partitions)


async def test_scrapes_that_overlap_each_see_one_world() -> None:
    harness = Harness()
    harness.create_topic(partitions=6)
    partitions, series = partitions_of(harness), PartitionSeries()
    alone = scraped(PartitionSeries(), partitions)
    one, other = Metrics(), Metrics()
    one.register(lambda: series.families(partitions))
    other.register(lambda: series.families(partitions[:3]))
    halves: list[bytes] = []
    for piece in one.exposition(process=False):
        halves.append(piece)
        b"".join(other.exposition(process=False))
    assert b"".join(halves).decode() == alone
