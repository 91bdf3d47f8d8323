"""The broker's metric families, read from its parts when somebody scrapes.

Names are those that Strimzi's JMX rules give Kafka's MBeans. `kraftbox.metrics.partitions` decides
whether series per partition are written: for every replica, for those led here, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from broker.context import BrokerContext
from broker.lifecycle import BrokerLifecycle
from broker.replication.partition import Partition, PartitionCounters, Role
from runtime.metrics import Family, Kind, Sample

_TOPIC_COUNTERS: Final = (
    ("bytesin", "bytes_in", "Bytes appended by producers"),
    ("bytesout", "bytes_out", "Bytes read by consumers"),
    ("messagesin", "messages_in", "Records appended by producers"),
    ("totalproducerequests", "produces", "Produce requests, per partition named"),
    ("totalfetchrequests", "fetches", "Fetches that returned records, per partition"),
    ("failedproducerequests", "failed_produces", "Produce requests that failed, per partition"),
    ("failedfetchrequests", "failed_fetches", "Fetches that failed, per partition"),
    ("bytesrejected", "bytes_rejected", "Bytes that producers sent in vain"),
    ("replicationbytesout", "replication_bytes_out", "Bytes read by followers"),
)

_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"


class BrokerMetrics:
    """Collects everything of one broker.

    A counter must not fall when a partition goes, so what deleted partitions had counted stays in
    the sum over all topics.
    """

    def __init__(self, broker: BrokerContext, lifecycle: BrokerLifecycle) -> None:
        self._broker = broker
        self._lifecycle = lifecycle
        self._which: str = broker.config["kraftbox.metrics.partitions"]

    def collect(self) -> Iterable[Family]:
        """All families; for `runtime.metrics.Metrics.register`."""
        partitions = list(self._broker.replicas)
        yield _one(
            "kafka_server_kafkaserver_brokerstate",
            "State of the broker: 3 is running",
            self._lifecycle.state,
        )
        yield from self._traffic(partitions)
        yield from self._replicas(partitions)
        yield from self._waiting()
        if self._which != "none":
            shown = [p for p in partitions if self._which == "all" or p.is_leader]
            yield from _per_partition(shown)

    def _traffic(self, partitions: list[Partition]) -> Iterator[Family]:
        by_topic: dict[str, list[PartitionCounters]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.counters)
        retired = self._broker.replicas.retired_counters
        for name, attribute, help_text in _TOPIC_COUNTERS:
            total = float(getattr(retired, attribute))
            samples: list[Sample] = []
            for topic, counters in sorted(by_topic.items()):
                value = float(sum(getattr(each, attribute) for each in counters))
                total += value
                samples.append(({"topic": topic}, value))
            samples.insert(0, ({}, total))
            yield Family(f"{_TOPICS}{name}_total", help_text, "counter", samples)

    def _replicas(self, partitions: list[Partition]) -> Iterator[Family]:
        leaders = [partition for partition in partitions if partition.is_leader]
        gauges = (
            ("partitioncount", "Replicas on this broker", len(partitions)),
            ("leadercount", "Partitions led by this broker", len(leaders)),
            (
                "underreplicatedpartitions",
                "Partitions led here with fewer in-sync replicas than replicas",
                sum(partition.under_replicated for partition in leaders),
            ),
            (
                "underminisrpartitioncount",
                "Partitions led here with fewer in-sync replicas than min.insync.replicas",
                sum(partition.under_min_isr for partition in leaders),
            ),
            (
                "atminisrpartitioncount",
                "Partitions led here with exactly min.insync.replicas in sync",
                sum(partition.at_min_isr for partition in leaders),
            ),
            (
                "offlinereplicacount",
                "Replicas whose log failed",
                sum(partition.role is Role.OFFLINE for partition in partitions),
            ),
        )
        for name, help_text, value in gauges:
            yield _one(_REPLICAS + name, help_text, value)
        offline = any(partition.role is Role.OFFLINE for partition in partitions)
        yield _one(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that failed",
            int(offline),
        )

    def _waiting(self) -> Iterator[Family]:
        sessions = self._broker.sessions
        yield _one(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait",
            len(self._broker.waits.purgatory),
        )
        cache = "kafka_server_fetchsessioncache_"
        yield _one(f"{cache}numincrementalfetchsessions", "Fetch sessions", len(sessions))
        yield _one(
            f"{cache}numincrementalfetchpartitionscached",
            "Partitions in fetch sessions",
            sessions.partition_count,
        )
        yield _one(
            f"{cache}incrementalfetchsessionevictions_total",
            "Fetch sessions that gave way to others",
            sessions.evictions,
            "counter",
        )


def _per_partition(partitions: list[Partition]) -> Iterator[Family]:
    labels = [{"topic": p.topic, "partition": str(p.index)} for p in partitions]
    pairs = list(zip(labels, partitions, strict=True))

    def family(name: str, help_text: str, values: Iterable[Sample]) -> Family:
        return Family(name, help_text, "gauge", values)

    yield family(
        "kafka_log_log_size", "Bytes of the log", [(at, float(p.log.size_bytes)) for at, p in pairs]
    )
    yield family(
        "kafka_log_log_logstartoffset",
        "First offset",
        [(at, float(p.log.log_start_offset)) for at, p in pairs],
    )
    yield family(
        "kafka_log_log_logendoffset",
        "Next offset",
        [(at, float(p.log.log_end_offset)) for at, p in pairs],
    )
    yield family(
        "kafka_log_log_numlogsegments",
        "Segments",
        [(at, float(len(p.log.segments))) for at, p in pairs],
    )
    led = [(at, p) for at, p in pairs if p.is_leader]
    cluster = "kafka_cluster_partition_"
    yield family(
        f"{cluster}underreplicated",
        "1 if in-sync replicas are missing",
        [(at, float(p.under_replicated)) for at, p in led],
    )
    yield family(
        f"{cluster}underminisr",
        "1 if there are fewer in-sync replicas than the minimum",
        [(at, float(p.under_min_isr)) for at, p in led],
    )
    yield family(
        f"{cluster}atminisr",
        "1 if one more loss falls below the minimum",
        [(at, float(p.at_min_isr)) for at, p in led],
    )
    yield family(
        f"{cluster}replicascount", "Replicas", [(at, float(len(p.replicas))) for at, p in led]
    )
    yield family(
        f"{cluster}insyncreplicascount",
        "In-sync replicas",
        [(at, float(len(p.isr))) for at, p in led],
    )


def _one(name: str, help_text: str, value: float, kind: Kind = "gauge") -> Family:
    return Family(name, help_text, kind, [({}, float(value))])
