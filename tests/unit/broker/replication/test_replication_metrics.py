"""What a broker tells of followers that are behind and of replicas that are being moved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.broker_metrics import BrokerMetrics
from broker.replication.fetcher import Fetcher
from runtime.metrics import rendered
from tests.unit.broker.replication.replicas import SETTINGS, Broker, Cluster

REASSIGNING = "kafka_server_replicamanager_reassigningpartitions"
BYTES_IN = "kafka_server_brokertopicmetrics_reassignmentbytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_reassignmentbytesout_total"
LAG = "kafka_server_fetcherlagmetrics_consumerlag"


def series(broker: Broker) -> dict[tuple[str, str], float]:
    """Every series of the broker by family and rendered labels."""
    links = [SimpleNamespace(fetcher=one, slot=0) for one in broker.fetchers.values()]
    collector = BrokerMetrics(
        broker.context,
        cast(Any, SimpleNamespace(state=3)),
        cast(Any, SimpleNamespace(fetchers=SimpleNamespace(links=links))),
    )
    return {
        (family.name, labels if isinstance(labels, str) else rendered(labels)): value
        for family in collector.collect()
        if family is not None
        for labels, value in family.samples
    }


def told(broker: Broker, name: str) -> float:
    return series(broker)[name, ""]


async def test_a_reassignment_is_counted_where_it_is_led_and_its_bytes_on_both_sides() -> None:
    c = Cluster()
    c.create(1, 2)
    c[1].append(b"a", b"b")
    c.fetch(2, times=2)
    c.change(replicas=[1, 2, 3], adding_replicas=[3])
    assert [told(c[node], REASSIGNING) for node in (1, 2, 3)] == [1, 0, 0]
    c.fetch(3, times=2)
    size = c[3].log.size_bytes
    assert size > 0
    assert [told(c[node], BYTES_IN) for node in (1, 2, 3)] == [0, 0, size]
    assert [told(c[node], BYTES_OUT) for node in (1, 2, 3)] == [size, 0, 0]
    c.change(replicas=[1, 2, 3], isr=[1, 2, 3], adding_replicas=[])
    c[1].append(b"c")
    c.fetch(3, times=2)
    assert c[3].log.size_bytes > size
    assert told(c[1], REASSIGNING) == 0
    assert (told(c[3], BYTES_IN), told(c[1], BYTES_OUT)) == (size, size)


async def test_replicas_that_only_leave_are_a_reassignment_without_bytes() -> None:
    c = Cluster()
    c.create(1, 2, 3)
    c.change(removing_replicas=[3])
    c[1].append(b"a")
    c.fetch(3, times=2)
    assert told(c[1], REASSIGNING) == 1
    assert (told(c[3], BYTES_IN), told(c[1], BYTES_OUT)) == (0, 0)


def behind(**props: str) -> Cluster:
    """Broker 3 is three records behind and fetches them one by one."""
    c = Cluster(3, **props)
    c[3].fetchers[1] = Fetcher(1, 3, SETTINGS._replace(max_bytes=1))
    c.create(1, 2, 3, isr=[1, 2])
    for value in (b"a", b"b", b"c"):
        c[1].append(value)
    c.fetch(2, times=2)
    c.fetch(3)
    return c


async def test_the_lag_of_each_followed_partition() -> None:
    c = behind()
    key = (LAG, '{clientId="ReplicaFetcherThread-0-1",topic="t",partition="0"}')
    lags = []
    for _ in range(3):
        lags.append(series(c[3])[key])
        c.fetch(3)
    assert lags == [2, 1, 0]
    assert not any(name == LAG for name, _ in series(c[1]))


@pytest.mark.parametrize("which", ["leader", "none"])
async def test_followers_lags_are_left_out_where_their_partitions_are(which: str) -> None:
    c = behind(kraftbox_metrics_partitions=which)
    assert not any(name == LAG for name, _ in series(c[3]))
    assert told(c[3], REASSIGNING) == 0
