"""Metric families of the broker, read from its parts at each scrape.

Names are those that Strimzi's JMX rules give Kafka's MBeans. `kraftbox.metrics.partitions` decides
for which partitions series are written: for every replica, for those led here, or for none.

Thousands of partitions would block the event loop for too long: they are added up with pauses, and
their own series are cached as text (`partition_series.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from broker.context import BrokerContext
from broker.controller_link.lifecycle import BrokerLifecycle
from broker.metrics.partition_series import PartitionSeries
from broker.replication.partition.counters import PartitionCounters
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.replication.service import Replication
from broker.replication.waiting.waits import DeleteRecordsWait, FetchWait, ProduceWait
from runtime.metrics import Family, Sample, rendered, single

_TOPIC_COUNTERS: Final = (
    ("bytesin", "bytes_in", "Bytes appended by producers"),
    ("bytesout", "bytes_out", "Bytes read by consumers"),
    ("messagesin", "messages_in", "Records appended by producers"),
    ("totalproducerequests", "produces", "Produce requests, counted per partition"),
    ("totalfetchrequests", "fetches", "Reads for fetches, counted per partition"),
    ("failedproducerequests", "failed_produces", "Failed produce requests, counted per partition"),
    ("failedfetchrequests", "failed_fetches", "Failed fetches, counted per partition"),
    ("bytesrejected", "bytes_rejected", "Bytes of rejected records from producers"),
    ("replicationbytesin", "replication_bytes_in", "Bytes fetched from leaders"),
    ("replicationbytesout", "replication_bytes_out", "Bytes read by followers"),
)

_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_METADATA: Final = "kafka_server_brokermetadatametrics_"

PARTITIONS_PER_TURN: Final = 100
"""Partitions per event-loop iteration: a quarter of a millisecond."""

_PURGATORIES: Final = (
    ("Produce", ProduceWait),
    ("Fetch", FetchWait),
    ("DeleteRecords", DeleteRecordsWait),
)


class _Totals:
    """Sums over all partitions."""

    def __init__(self, deleted: PartitionCounters) -> None:
        self.counted = deleted.copy()
        """Sums over all partitions including deleted ones, once every topic is added."""
        self.partitions = 0
        self.leaders = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.reassigning = 0
        self.offline = 0
        self.by_topic: dict[str, PartitionCounters] = {}

    def add(self, partitions: Sequence[Partition]) -> None:
        # Runs for every partition at every scrape, so it avoids calls.
        self.partitions += len(partitions)
        by_topic = self.by_topic
        for partition in partitions:
            role = partition.role
            if role is ReplicaRole.LEADER:
                self.leaders += 1
                in_sync = len(partition.isr)
                self.under_replicated += in_sync < len(partition.replicas)
                if in_sync <= partition.min_isr:
                    least = partition.effective_min_isr
                    self.under_min_isr += in_sync < least
                    self.at_min_isr += in_sync == least
                if partition.adding or partition.removing:
                    self.reassigning += 1
            elif role is ReplicaRole.OFFLINE:
                self.offline += 1
            counters = by_topic.get(partition.topic)
            if counters is None:
                counters = by_topic[partition.topic] = PartitionCounters()
            counters.add(partition.counters)


class BrokerMetrics:
    """Collector of all families of one broker.

    A counter must not decrease when a partition is removed, so the counts of deleted partitions
    stay in the sum over all topics.
    """

    def __init__(
        self,
        broker: BrokerContext,
        lifecycle: BrokerLifecycle,
        replication: Replication | None = None,
    ) -> None:
        self._broker = broker
        self._lifecycle = lifecycle
        self._replication = replication
        self._which = broker.static.partition_metrics
        self._series = PartitionSeries()

    def collect(self) -> Iterable[Family | None]:
        """Yield all families; for `runtime.metrics.Metrics.register`."""
        yield single(
            "kafka_server_kafkaserver_brokerstate",
            "State of the broker: 3 is running",
            self._lifecycle.state,
        )
        partitions = list(self._broker.replicas)
        # Copied now: partitions removed during a pause must not be counted twice.
        totals = _Totals(self._broker.replicas.deleted_counters)
        left = iter(partitions)
        while slice_ := list(islice(left, PARTITIONS_PER_TURN)):
            totals.add(slice_)
            yield None
        topics = iter(totals.by_topic.values())
        while of_topics := list(islice(topics, PARTITIONS_PER_TURN)):
            for counters in of_topics:
                totals.counted.add(counters)
            yield None
        yield from self._replicas(totals)
        yield from self._fetchers()
        yield from self._throttles()
        yield from self._metadata()
        yield from self._waiting()
        yield from _traffic(totals)
        if self._which != "none":
            shown = [p for p in partitions if self._which == "all" or p.is_leader]
            yield from self._series.families(shown)
        if self._which == "all":
            yield self._lags()

    def _replicas(self, totals: _Totals) -> Iterator[Family]:
        for name, help_text, value in (
            ("partitioncount", "Replicas on this broker", totals.partitions),
            ("leadercount", "Partitions led by this broker", totals.leaders),
            (
                "underreplicatedpartitions",
                "Partitions led here with fewer in-sync replicas than replicas",
                totals.under_replicated,
            ),
            (
                "underminisrpartitioncount",
                "Partitions led here with fewer in-sync replicas than min.insync.replicas",
                totals.under_min_isr,
            ),
            (
                "atminisrpartitioncount",
                "Partitions led here with exactly min.insync.replicas in sync",
                totals.at_min_isr,
            ),
            (
                "reassigningpartitions",
                "Partitions led here that are being reassigned",
                totals.reassigning,
            ),
            ("offlinereplicacount", "Replicas with a failed log", totals.offline),
        ):
            yield single(_REPLICAS + name, help_text, value)
        counted = totals.counted
        for name, help_text, value in (
            ("isrshrinks_total", "Number of times replicas left the ISR", counted.isr_shrinks),
            ("isrexpands_total", "Number of times replicas joined the ISR", counted.isr_expands),
            (
                "failedisrupdates_total",
                "ISR changes that the controller rejected",
                counted.failed_isr_updates,
            ),
        ):
            yield single(_REPLICAS + name, f"{help_text} of a partition led here", value, "counter")
        for name, help_text, value in (
            ("in", "Bytes fetched by replicas that are being added", counted.reassignment_bytes_in),
            ("out", "Bytes sent to replicas that are being added", counted.reassignment_bytes_out),
        ):
            yield single(f"{_TOPICS}reassignmentbytes{name}_total", help_text, value, "counter")
        yield single(
            "kraftbox_replica_truncations_below_high_watermark_total",
            "Number of times committed records were truncated because an unclean "
            "leader lacked them",
            counted.truncations_below_high_watermark,
            "counter",
        )
        replication = self._replication
        yield single(
            "kraftbox_local_log_reports_total",
            "Reports to the controller about local logs of replicas of a partition led here",
            0 if replication is None else replication.isr_changes.reports.sent,
            "counter",
        )
        yield single(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that failed",
            int(totals.offline > 0),
        )
        yield Family(
            "kafka_log_logmanager_logdirectoryoffline",
            "1 if the log directory failed",
            "gauge",
            [({"logDirectory": self._broker.replicas.logs.directory}, int(totals.offline > 0))],
        )

    def _fetchers(self) -> Iterator[Family]:
        """Yield the families of fetches from leaders. Labels are Kafka's, except the leader's
        id."""
        replication = self._replication
        fetchers = [] if replication is None else [x.fetcher for x in replication.fetchers.links]
        manager, client = "kafka_server_replicafetchermanager_", {"clientId": "Replica"}
        for name, help_text, value in (
            (
                "maxlag",
                "Largest number of committed records that a replica here lacks",
                max((fetcher.lag_max for fetcher in fetchers), default=0),
            ),
            (
                "failedpartitionscount",
                "Replicas in backoff after a failed fetch",
                sum(fetcher.failed_partitions for fetcher in fetchers),
            ),
        ):
            yield Family(manager + name, help_text, "gauge", [(client, value)])
        for name, help_text, attribute in (
            ("requests_total", "Fetch requests sent to a leader", "requests"),
            ("bytes_total", "Bytes of records fetched from a leader", "bytes"),
            (
                "failed_requests_total",
                "Fetches without a response from the leader",
                "failed_requests",
            ),
        ):
            counted: dict[int, int] = {}
            for fetcher in fetchers:
                before = counted.get(fetcher.leader_id, 0)
                counted[fetcher.leader_id] = before + getattr(fetcher.counters, attribute)
            yield Family(
                f"kraftbox_fetcher_{name}",
                help_text,
                "counter",
                [({"leader": str(leader)}, value) for leader, value in sorted(counted.items())],
            )

    def _lags(self) -> Family:
        """Return the consumer lag by the name of Kafka's fetcher thread: slot and leader."""
        links = [] if self._replication is None else self._replication.fetchers.links

        def samples() -> Iterator[Sample]:
            for link in links:
                client = f"ReplicaFetcherThread-{link.slot}-{link.fetcher.leader_id}"
                for p, lag in link.fetcher.lags():
                    labels = {"clientId": client, "topic": p.topic, "partition": str(p.index)}
                    yield rendered(labels), lag

        return Family(
            "kafka_server_fetcherlagmetrics_consumerlag",
            "Committed records that the replica here lacks",
            "gauge",
            samples(),
        )

    def _throttles(self) -> Iterator[Family]:
        throttles, now_ms = self._broker.throttles, self._broker.clock.monotonic_ms()
        for name, help_text, throttle in (
            ("leader", "Bytes per second sent to throttled followers", throttles.sending),
            ("follower", "Bytes per second fetched by throttled replicas", throttles.fetching),
        ):
            yield single(
                f"kafka_server_{name}replication_byte_rate", help_text, throttle.per_second(now_ms)
            )

    def _metadata(self) -> Iterator[Family]:
        """Yield the families of this broker's progress in the metadata log."""
        provenance = self._broker.metadata.image.provenance
        lag_ms = max(self._broker.clock.now_ms() - provenance.timestamp_ms, 0)
        for name, help_text, value in (
            (
                "last_applied_record_offset",
                "Offset of the last metadata record that the broker has applied",
                provenance.offset,
            ),
            (
                "last_applied_record_timestamp",
                "Write time of the last record applied, epoch ms",
                provenance.timestamp_ms,
            ),
            ("last_applied_record_lag_ms", "Age of the last record applied in ms", lag_ms),
        ):
            yield single(_METADATA + name, help_text, value)

    def _waiting(self) -> Iterator[Family]:
        sessions = self._broker.sessions
        counts = self._broker.waits.purgatory.count_by_class()
        yield Family(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait for a commit, for bytes or for their timeout",
            "gauge",
            [({"delayedOperation": name}, counts.get(kind, 0)) for name, kind in _PURGATORIES],
        )
        cache = "kafka_server_fetchsessioncache_"
        yield single(f"{cache}numincrementalfetchsessions", "Fetch sessions", len(sessions))
        yield single(
            f"{cache}numincrementalfetchpartitionscached",
            "Partitions in fetch sessions",
            sessions.partition_count,
        )
        yield single(
            f"{cache}incrementalfetchsessionevictions_total",
            "Fetch sessions that were evicted",
            sessions.evictions,
            "counter",
        )


def _traffic(totals: _Totals) -> Iterator[Family | None]:
    """Yield series per topic, and without a label the sums over all topics that ever existed."""
    topics = [("", totals.counted)]
    left = iter(sorted(totals.by_topic.items()))
    while slice_ := list(islice(left, PARTITIONS_PER_TURN)):
        topics += [(rendered({"topic": topic}), counters) for topic, counters in slice_]
        yield None
    for name, attribute, help_text in _TOPIC_COUNTERS:
        yield Family(f"{_TOPICS}{name}_total", help_text, "counter", _counted(topics, attribute))


def _counted(topics: list[tuple[str, PartitionCounters]], attribute: str) -> Iterator[Sample]:
    for labels, counters in topics:
        yield labels, getattr(counters, attribute)
