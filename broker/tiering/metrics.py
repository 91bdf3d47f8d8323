"""Metric series of tiered storage, computed at each scrape.

Names are those that Strimzi's JMX rules give Kafka's MBeans (KIP-405, KIP-963). These rules omit
Kafka's metrics of its thread pools; here the counterparts are `kraftbox_tier_*`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from broker.tiering.counters import BuildCounters
from broker.tiering.tasks import TierTasks
from runtime.metrics import Family, Kind, Labels, Sample, single

_TOPICS: Final = "kafka_server_brokertopicmetrics_"

_DONE: Final = (
    ("remotecopybytes", "copy_bytes", "Bytes of segments that were copied to tiered storage"),
    ("remotecopyrequests", "copy_requests", "Copies of segments that were begun"),
    ("remotecopyerrors", "copy_errors", "Copies of segments that failed"),
    ("remotedeleterequests", "delete_requests", "Deletions of remote segments that were begun"),
    ("remotedeleteerrors", "delete_errors", "Deletions of remote segments that failed"),
)
_READ: Final = (
    ("remotefetchbytes", "bytes", "Bytes read from tiered storage"),
    ("remotefetchrequests", "requests", "Reads of tiered storage"),
    ("remotefetcherrors", "errors", "Reads of tiered storage that failed"),
)
_BUILT: Final = (
    ("buildremotelogauxstaterequests", "requests", "Follower logs to begin behind the tier"),
    ("buildremotelogauxstateerrors", "errors", "Follower logs that could not begin there"),
)
_LEFT: Final = (
    ("remotecopylagbytes", "copy_bytes", "Bytes of closed segments that are not copied yet"),
    ("remotecopylagsegments", "copy_segments", "Closed segments that are not copied yet"),
    ("remotedeletelagbytes", "delete_bytes", "Bytes of remote segments that are to be deleted"),
    ("remotedeletelagsegments", "delete_segments", "Remote segments that are to be deleted"),
    ("remotelogmetadatacount", "remote_segments", "Remote segments that the metadata know"),
    ("remotelogsizebytes", "remote_bytes", "Bytes of finished remote segments"),
    ("remotelogsizecomputationtime", "size_ms", "Milliseconds to add up the remote segments"),
)


class ReadCount(Protocol):
    """Reads of one topic."""

    requests: int
    errors: int
    bytes: int


class TierMetrics:
    """Collector for the completed and outstanding work of a broker's tier."""

    def __init__(
        self,
        tasks: TierTasks,
        *,
        reads: Callable[[], Mapping[str, ReadCount]],
        builds: Callable[[], Mapping[str, BuildCounters]],
        removals: Callable[[], int],
    ) -> None:
        self._tasks = tasks
        self._reads = reads
        self._builds = builds
        self._removals = removals

    def collect(self) -> Iterable[Family]:
        """Yield all families; for `runtime.metrics.Metrics.register`."""
        for name, field, text in _DONE:
            yield _by_topic(f"{name}_total", text, "counter", _field(self._tasks.counters, field))
        for name, field, text in _READ:
            yield _by_topic(f"{name}_total", text, "counter", _field(self._reads(), field))
        for name, field, text in _BUILT:
            yield _by_topic(f"{name}_total", text, "counter", _field(self._builds(), field))
        led = list(self._tasks.leading.values())
        for name, field, text in _LEFT:
            sums: dict[str, float] = {}
            for one in led:
                topic = one.partition.topic
                sums[topic] = sums.get(topic, 0) + getattr(one.backlog, field)
            yield _by_topic(name, text, "gauge", sums)
        yield from self._pools()
        yield single(
            "kraftbox_tier_blocked_partitions",
            "Partitions whose next segment cannot be copied, whatever is tried",
            sum(bool(one.backlog.blocked) for one in led),
        )
        yield single(
            "kraftbox_tier_partition_removals",
            "Deleted partitions whose objects are still to be removed by this broker",
            self._removals(),
        )

    def _pools(self) -> Iterator[Family]:
        pools = {"copy": self._tasks.copies, "expiry": self._tasks.expirations}
        yield Family(
            "kraftbox_tier_passes_running",
            "Passes over partitions that are under way",
            "gauge",
            [({"work": name}, pool.running) for name, pool in pools.items()],
        )
        yield Family(
            "kraftbox_tier_passes_seconds_total",
            "Time that passes over partitions took",
            "counter",
            [({"work": name}, pool.busy_ms / 1000.0) for name, pool in pools.items()],
        )
        yield single(
            "kraftbox_tier_copy_throttle_seconds_total",
            "Time that copies waited for their rate to come down",
            self._tasks.copy_limit.waited_ms / 1000.0,
            kind="counter",
        )


def _field(by_topic: Mapping[str, object], field: str) -> dict[str, int]:
    return {topic: getattr(counters, field) for topic, counters in by_topic.items()}


def _by_topic(name: str, text: str, kind: Kind, values: Mapping[str, float]) -> Family:
    """Return one series for each topic, and their sum without a label."""
    labels: Labels = {}
    samples: list[Sample] = [(labels, sum(values.values()))]
    samples += [({"topic": topic}, value) for topic, value in values.items()]
    return Family(_TOPICS + name, text, kind, samples)
