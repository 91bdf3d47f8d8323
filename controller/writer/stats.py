"""Counters and metric families of the controller.

Counters are plain attributes. Values about topics and brokers are read from the committed image
when metrics are collected. Names follow Strimzi's rules for Kafka's `kafka.controller` MBeans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.decision import ControllerView
from controller.elections.context import ElectionContext
from controller.elections.local_logs import eligible_first
from controller.elections.recovery import RecoveryCounts
from controller.elections.recovery_rules import WaitsFor
from metalog.image.values import (
    LOSSY_ELECTIONS,
    NO_LEADER,
    ElectedAs,
    MetadataImage,
    PartitionImage,
)
from protocol.metadata import PartitionChangeRecord
from protocol.schema import MetadataRecord
from runtime.metrics import QUANTILES, Family, single
from runtime.recent_times import RecentTimes, summary

PARTITIONS_PER_TURN = 2_000
"""Partitions counted before other tasks run: about one millisecond."""
_PREFIX = "kafka_controller_kafkacontroller_"

ELECTIONS: tuple[ElectedAs, ...] = tuple(kind for kind in ElectedAs if kind is not ElectedAs.NONE)


def word_of(kind: ElectedAs) -> str:
    """Return the kind in the form that the audit uses, such as "last-known-leader"."""
    return kind.name.lower().replace("_", "-")


def last_known_leaders(records: Iterable[MetadataRecord]) -> list[PartitionChangeRecord]:
    """Return the changes that elect a last known leader: no replica with all committed records was
    left."""
    return [
        record
        for record in records
        if type(record) is PartitionChangeRecord
        and record.election_kind == ElectedAs.LAST_KNOWN_LEADER
    ]


class ControllerStats:
    """Counters of one controller."""

    __slots__ = (
        "became_active",
        "by_kind",
        "lost_leadership",
        "metadata_errors",
        "passed_over",
        "processing",
        "recovery",
        "timed_out_heartbeats",
    )

    def __init__(self) -> None:
        self.became_active = 0
        self.lost_leadership = 0
        self.by_kind: dict[ElectedAs, int] = dict.fromkeys(ELECTIONS, 0)
        self.metadata_errors = 0
        self.passed_over = 0
        """Elections that passed over an eligible replica because it has too little of the log
        locally."""
        self.timed_out_heartbeats = 0
        self.recovery = RecoveryCounts()
        self.processing = RecentTimes()

    def operation(self, duration_ms: float) -> None:
        """Note the time in ms in which an operation was decided, replayed and appended."""
        self.processing.add(duration_ms)

    def count_elections(self, records: Iterable[MetadataRecord]) -> None:
        """Count the elections in appended records, by kind.

        The recovery state would not suffice: a partition that is RECOVERING may have another
        unclean election.
        """
        for record in records:
            if type(record) is PartitionChangeRecord and record.election_kind != ElectedAs.NONE:
                self.by_kind[ElectedAs(record.election_kind)] += 1

    @property
    def elections(self) -> int:
        """Number of elections of all kinds."""
        return sum(self.by_kind.values())

    @property
    def unclean_elections(self) -> int:
        """Number of elections whose leader may lack committed records."""
        return sum(self.by_kind[kind] for kind in LOSSY_ELECTIONS)


class ImageCounts:
    """Totals over an image, complete after `steps` has ended.

    `view` contains the image. Preferred replicas may depend on the time (KIP-1303); the totals are
    then those at that time.
    """

    __slots__ = (
        "active_brokers",
        "fenced_brokers",
        "image",
        "local_logs_short",
        "offline_partitions",
        "partitions",
        "preferred_imbalance",
        "preferred_passed_over",
        "topics",
        "_elections",
        "_timeless",
    )

    def __init__(self, view: ControllerView) -> None:
        self.image = image = view.image
        self._elections = ElectionContext(view)
        self._timeless = True
        brokers = image.cluster.brokers.values()
        self.fenced_brokers = sum(broker.fenced for broker in brokers)
        self.active_brokers = len(image.cluster.brokers) - self.fenced_brokers
        self.topics = len(image.topics.by_id)
        self.partitions = 0
        self.offline_partitions = 0
        self.preferred_imbalance = 0
        self.preferred_passed_over = 0
        """Partitions whose first replica is not preferred now, because of too little data
        locally."""
        self.local_logs_short = 0
        """Replicas that are known to have too little locally."""

    def hold_for(self, image: MetadataImage) -> bool:
        """Return whether this image has the same totals, because it shares the relevant parts."""
        mine = self.image
        return (
            self._timeless
            and mine.topics is image.topics
            and mine.cluster is image.cluster
            and mine.configs is image.configs
        )

    def steps(self) -> Iterator[None]:
        """Count the partitions; yield regularly to other tasks."""
        pause_at = PARTITIONS_PER_TURN
        for topic in self.image.topics.by_id.values():
            self.partitions += len(topic.partitions)
            too_little = self._elections.rules(topic).too_little
            for partition in topic.partitions.values():
                if partition.leader == NO_LEADER:
                    self.offline_partitions += 1
                preferred = partition.replicas[0]
                if too_little is not None and partition.local_logs:
                    preferred = self._preferred(partition, too_little(partition.local_logs))
                if partition.leader != preferred:
                    self.preferred_imbalance += 1
            if self.partitions >= pause_at:
                pause_at = self.partitions + PARTITIONS_PER_TURN
                yield

    def _preferred(self, partition: PartitionImage, short: tuple[int, ...]) -> int:
        self._timeless = False
        self.local_logs_short += sum(replica in short for replica in partition.replicas)
        preferred = eligible_first(partition.replicas, short)[0]
        self.preferred_passed_over += preferred != partition.replicas[0]
        return preferred


def image_families(counts: ImageCounts, *, is_active: bool) -> Iterator[Family]:
    """Yield cluster totals. A controller that is not active reports them too, as in Kafka."""
    for name, text, value in (
        ("activecontrollercount", "1 on the active controller, else 0", int(is_active)),
        ("activebrokercount", "Registered brokers that are not fenced", counts.active_brokers),
        ("fencedbrokercount", "Registered brokers that are fenced", counts.fenced_brokers),
        ("globaltopiccount", "Topics of the cluster", counts.topics),
        ("globalpartitioncount", "Partitions of the cluster", counts.partitions),
        ("offlinepartitionscount", "Partitions without a leader", counts.offline_partitions),
        (
            "preferredreplicaimbalancecount",
            "Partitions whose leader is not the preferred replica",
            counts.preferred_imbalance,
        ),
    ):
        yield single(_PREFIX + name, text, value)
    yield single(
        "kraftbox_local_log_ineligible_replicas",
        "Replicas whose local log is too small for a preferred candidate",
        counts.local_logs_short,
    )
    yield single(
        "kraftbox_local_log_preferred_waiting",
        "Partitions whose preferred replica has a local log that is too small",
        counts.preferred_passed_over,
    )


def stats_families(
    stats: ControllerStats, *, applied: int, committed: int, applied_at_ms: int, lag_ms: int
) -> Iterator[Family]:
    """Yield the controller's own counters and offsets; `applied_at_ms` is a wall time."""
    for name, text, value in (
        ("lastappliedrecordoffset", "Offset of the last metadata record applied", applied),
        (
            "lastappliedrecordtimestamp",
            "Write time of the last record applied, epoch ms",
            applied_at_ms,
        ),
        (
            "lastappliedrecordlagms",
            ("Age of the last record applied in ms; 0 on the active controller"),
            lag_ms,
        ),
        ("lastcommittedrecordoffset", "Offset of the last metadata record committed", committed),
    ):
        yield single(_PREFIX + name, text, value)
    for name, text, value in (
        (
            "metadataerrorcount",
            "Records that could not be applied or written",
            stats.metadata_errors,
        ),
        (
            "timedoutbrokerheartbeatcount",
            "Broker sessions that expired",
            stats.timed_out_heartbeats,
        ),
        (
            "newactivecontrollerscount",
            "Number of times this node became the active controller",
            stats.became_active,
        ),
    ):
        yield single(_PREFIX + name, text, value)
    yield from election_families(stats)
    yield from recovery_families(stats.recovery)
    events = "kafka_controller_controllereventmanager_"
    # Operations are decided when they arrive: none ever waits in a queue.
    yield summary(
        events + "eventqueuetimems",
        "Queue time of operations in ms",
        [0.0] * len(QUANTILES),
        stats.processing.count,
    )
    yield stats.processing.family(
        events + "eventqueueprocessingtimems",
        "Time to decide, replay and append an operation in ms",
    )


def election_families(stats: ControllerStats) -> Iterator[Family]:
    """Yield elections by kind, lossy and clean."""
    yield single(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Elections that may have lost records",
        stats.unclean_elections,
        "counter",
    )
    yield single(
        "kafka_controller_controllerstats_leaderelections_total",
        "Elections of a leader",
        stats.elections,
        "counter",
    )
    yield single(
        "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total",
        "Elections from the eligible leader replicas, without loss",
        stats.by_kind[ElectedAs.ELR],
        "counter",
    )
    yield Family(
        "kraftbox_controller_elections_total",
        "Elections of a leader by kind",
        "counter",
        [({"kind": word_of(kind)}, count) for kind, count in stats.by_kind.items()],
    )
    yield single(
        "kraftbox_local_log_elections_passed_over_total",
        "Elections that skipped a replica because its local log is too small",
        stats.passed_over,
        "counter",
    )


def recovery_families(counts: RecoveryCounts) -> Iterator[Family]:
    """Yield unclean recoveries (KIP-966), and leaderless partitions by what they wait for.

    All are zero on a controller that is not active.
    """
    yield single(
        "kraftbox_unclean_recovery_running",
        "Unclean recoveries that wait for brokers to report their log end offsets",
        counts.running,
    )
    for name, text, value in (
        ("finished", "Unclean recoveries that elected the longest log", counts.finished),
        ("given_up", "Unclean recoveries that ended without such an election", counts.given_up),
    ):
        yield single(f"kraftbox_unclean_recovery_{name}_total", text, value, "counter")
    yield Family(
        "kraftbox_leaderless_partitions",
        "Partitions without a leader, by the event that they wait for",
        "gauge",
        [({"waits_for": waits.value}, counts.waiting[waits]) for waits in WaitsFor],
    )
