"""Replication metrics: followers that are behind, and replicas that are being moved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.metrics.families import BrokerMetrics
from broker.replication.fetching.fetcher import Fetcher
from broker.replication.partition.high_watermark import maybe_advance_high_watermark
from protocol.batch.records import Producer
from protocol.errors import ErrorCode
from protocol.metadata import ConfigRecord, PartitionRecord
from runtime.metrics import Metrics, rendered
from storage.log.producers import Origin
from testkit.memory.broker import batch
from testkit.memory.replicas import SETTINGS, TOPIC, Broker, Cluster

REASSIGNING = "kafka_server_replicamanager_reassigningpartitions"
BYTES_IN = "kafka_server_brokertopicmetrics_reassignmentbytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_reassignmentbytesout_total"
LAG = "kafka_server_fetcherlagmetrics_consumerlag"


def collector(broker: Broker) -> BrokerMetrics:
    links = [SimpleNamespace(fetcher=one, slot=0) for one in broker.fetchers.values()]
    return BrokerMetrics(
        broker.context,
        cast(Any, SimpleNamespace(state=3)),
        cast(
            Any,
            SimpleNamespace(
                fetchers=SimpleNamespace(links=links),
                isr_changes=SimpleNamespace(reports=broker.reports),
            ),
        ),
    )


def series(broker: Broker) -> dict[tuple[str, str], float]:
    """Return every series of the broker by family and rendered labels."""
    return {
        (family.name, labels if isinstance(labels, str) else rendered(labels)): value
        for family in collector(broker).collect()
        if family is not None
        for labels, value in family.samples
    }


def shown(broker: Broker) -> dict[str, float]:
    """Return the values of a scrape, by name and rendered labels."""
    metrics = Metrics()
    metrics.register(collector(broker).collect)
    text = b"".join(metrics.exposition(process=False)).decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


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
    """Return a cluster whose broker 3 is three records behind and fetches them one by one."""
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


# --- metrics of alerts: each above 0 once ---------------------------------------------------------

REPLICAS = "kafka_server_replicamanager_"
PARTITION = "kafka_cluster_partition_"
T0 = '{topic="t",partition="0"}'


@pytest.mark.parametrize(
    ("minimum", "isr", "under_replicated", "at_minimum", "under_minimum"),
    [
        (1, [1, 2, 3], 0, 0, 0),
        (1, [1, 3], 1, 0, 0),
        (1, [1], 1, 1, 0),
        (2, [1, 2, 3], 0, 0, 0),
        (2, [1, 2], 1, 1, 0),
        (2, [1], 1, 0, 1),
        (3, [1, 2, 3], 0, 1, 0),
        (3, [1, 2], 1, 0, 1),
        # The limit exceeds the number of replicas: all of them are enough.
        (4, [1, 2, 3], 0, 1, 0),
        (4, [1, 2], 1, 0, 1),
    ],
)
async def test_isr_size_metrics_are_reported_by_the_leader_only(
    minimum: int, isr: list[int], under_replicated: int, at_minimum: int, under_minimum: int
) -> None:
    """UnderReplicatedPartitions, AtMinIsr and UnderMinIsr come from the leader only.

    Each is checked as a total and as the partition's own series.
    """
    c = Cluster()
    c.records += [
        ConfigRecord(
            resource_type=2, resource_name="t", name="min.insync.replicas", value=str(minimum)
        )
    ]
    c.create(1, 2, 3, isr=isr)
    told = shown(c[1])
    for total, own, expected in (
        ("underreplicatedpartitions", "underreplicated", under_replicated),
        ("atminisrpartitioncount", "atminisr", at_minimum),
        ("underminisrpartitioncount", "underminisr", under_minimum),
    ):
        assert told[REPLICAS + total] == expected, total
        assert told[PARTITION + own + T0] == expected, own
    assert told[PARTITION + "replicascount" + T0] == 3
    assert told[PARTITION + "insyncreplicascount" + T0] == len(isr)
    follower = shown(c[2])
    assert follower[REPLICAS + "underreplicatedpartitions"] == 0
    assert follower[REPLICAS + "atminisrpartitioncount"] == 0
    assert follower[REPLICAS + "underminisrpartitioncount"] == 0
    assert PARTITION + "underreplicated" + T0 not in follower


async def test_each_partition_that_is_short_counts() -> None:
    c = Cluster()
    c[1].create_topic("t", partitions=3, replicas=[1, 2], isr=[1])
    c[1].create_topic("u", number=2, partitions=2, replicas=[1, 2])
    told = shown(c[1])
    assert told[REPLICAS + "underreplicatedpartitions"] == 3
    assert told[REPLICAS + "atminisrpartitioncount"] == 3


async def test_changes_of_the_isr_are_counted() -> None:
    c = Cluster()
    c.create(1, 2, 3)
    c.change(isr=[1, 2])
    c.change(isr=[1])
    c.change(isr=[1, 3])
    told = shown(c[1])
    assert told[REPLICAS + "isrshrinks_total"] == 2
    assert told[REPLICAS + "isrexpands_total"] == 1


async def test_the_largest_lag_of_any_fetcher() -> None:
    """MaxLag is the largest lag of all followed partitions, not the first one's, nor their sum."""
    c = behind()
    c[3].fetchers[2] = Fetcher(2, 3, SETTINGS._replace(max_bytes=1))
    c.records.append(
        PartitionRecord(partition_id=1, topic_id=TOPIC, replicas=[2, 3], isr=[2], leader=2)
    )
    c.catch_up()
    for value in (b"a", b"b", b"c", b"d", b"e"):
        c[2].produce(batch(value), index=1, acks=1)
    name = 'kafka_server_replicafetchermanager_maxlag{clientId="Replica"}'
    lags = [shown(c[3])[name]]
    for leader in (2, 2, 2, 1, 2, 1, 2):
        c.fetch(3, leader)
        lags.append(shown(c[3])[name])
    assert lags == [2, 4, 3, 2, 2, 1, 1, 0]
    assert shown(c[1])[name] == 0


async def test_failed_partitions_metric_counts_a_replica_whose_fetch_failed() -> None:
    c = Cluster(2)
    c.create(1, 2)
    name = 'kafka_server_replicafetchermanager_failedpartitionscount{clientId="Replica"}'
    assert shown(c[2])[name] == 0
    response = c.send(2, 1)
    assert response is not None
    response.responses[0].partitions[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    c.take(2, 1, response)
    assert shown(c[2])[name] == 1


async def test_a_log_that_failed_is_an_offline_replica_in_an_offline_directory() -> None:
    """OfflineReplicaCount and OfflineLogDirectoryCount stay as long as the node lives."""
    c = Cluster(2)
    c[1].create_topic("t", partitions=3, replicas=[1, 2])
    directories = "kafka_log_logmanager_offlinelogdirectorycount"
    told = shown(c[1])
    assert (told[REPLICAS + "offlinereplicacount"], told[directories]) == (0, 0)
    for failed in (1, 2):
        c[1].partition(index=failed).log.guard.fail(OSError("disk"))
        c[1].produce(batch(b"a"), index=failed)
        told = shown(c[1])
        assert (told[REPLICAS + "offlinereplicacount"], told[directories]) == (failed, 1)
        (offline,) = (told[name] for name in told if "logmanager_logdirectoryoffline" in name)
        assert offline == 1
    assert told[REPLICAS + "leadercount"] == 1
    assert told[REPLICAS + "partitioncount"] == 3


async def test_replication_bytes_and_produce_purgatory_metrics_follow_a_fetch() -> None:
    c = Cluster(2)
    c.create(1, 2)
    waiting = c[1].append(b"a", acks=-1)
    size = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert shown(c[1])[size + '{delayedOperation="Produce"}'] == 1
    c.fetch(2, times=2)
    await waiting
    told = shown(c[1])
    assert told[size + '{delayedOperation="Produce"}'] == 0
    bytes_out = told["kafka_server_brokertopicmetrics_replicationbytesout_total"]
    assert bytes_out == c[2].log.size_bytes > 0


async def test_an_open_transaction_keeps_the_last_stable_offset_behind() -> None:
    c = Cluster(1)
    c.create(1)
    log = c[1].log
    for sequence in range(2):
        data = batch(b"a", b"b", producer=Producer(7, 0, 2 * sequence, transactional=True))
        log.append_as_leader(bytearray(data), 0, 0, Origin.COORDINATOR)
    partition = c[1].partition()
    c[1].replicas.carry_out(partition, maybe_advance_high_watermark(partition))
    told = shown(c[1])
    assert told[PARTITION + "laststableoffsetlag" + T0] == 4
    c[1].partition().log.update_high_watermark(4)
    log.advance_log_start(1)
    assert shown(c[1])["kafka_log_log_logstartoffset" + T0] == 1


async def test_reports_of_local_logs_are_counted() -> None:
    """KIP-1303: each partition of a request counts as one report."""
    c = Cluster(2, leader_election_eligible_local_log_bytes="1")
    c.create(1, 2)
    name = ("kraftbox_local_log_reports_total", "")
    assert series(c[1])[name] == 0
    c[1].append(b"a")
    c.fetch(2, times=2)
    assert c[1].reports.next_request(1, 101, 0.0) is not None
    assert (series(c[1])[name], series(c[2])[name]) == (1, 0)
