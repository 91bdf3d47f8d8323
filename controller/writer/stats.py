"""Counters and metric families of the controller.

Counters are plain attributes; everything about topics and brokers is read from the committed image
when it is asked for. Names are those of Kafka's `kafka.controller` MBeans by Strimzi's rules.
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
"""How many are counted before others may have the loop: a millisecond's worth."""
_PREFIX = "kafka_controller_kafkacontroller_"

ELECTIONS: tuple[ElectedAs, ...] = tuple(kind for kind in ElectedAs if kind is not ElectedAs.NONE)


def word_of(kind: ElectedAs) -> str:
    """The kind as the audit says it: "last-known-leader"."""
    return kind.name.lower().replace("_", "-")


def last_known_leaders(records: Iterable[MetadataRecord]) -> list[PartitionChangeRecord]:
    """Changes that elect a last known leader: nobody was left who has all committed records."""
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
        """Elections whose leader is not the first that could lead, which has too little locally."""
        self.timed_out_heartbeats = 0
        self.recovery = RecoveryCounts()
        self.processing = RecentTimes()

    def operation(self, duration_ms: float) -> None:
        """One operation was decided, replayed and appended in that time."""
        self.processing.add(duration_ms)

    def count_elections(self, records: Iterable[MetadataRecord]) -> None:
        """Count the elections that appended records note, by their kinds.

        The recovery state would not do: a partition that recovers already can be led uncleanly
        once more.
        """
        for record in records:
            if type(record) is PartitionChangeRecord and record.election_kind != ElectedAs.NONE:
                self.by_kind[ElectedAs(record.election_kind)] += 1

    @property
    def elections(self) -> int:
        """Elections of all kinds."""
        return sum(self.by_kind.values())

    @property
    def unclean_elections(self) -> int:
        """Those whose leader may lack committed records."""
        return sum(self.by_kind[kind] for kind in LOSSY_ELECTIONS)


class ImageCounts:
    """Totals over an image, whole when `steps` has ended.

    `view` has the image. Who is preferred may depend on the time (KIP-1303): then the totals are
    those of that moment.
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
        """Partitions whose first replica is not preferred now: it has too little locally."""
        self.local_logs_short = 0
        """Replicas that are known to have too little locally."""

    def hold_for(self, image: MetadataImage) -> bool:
        """Whether this image has the same totals, because it has the same parts."""
        mine = self.image
        return (
            self._timeless
            and mine.topics is image.topics
            and mine.cluster is image.cluster
            and mine.configs is image.configs
        )

    def steps(self) -> Iterator[None]:
        """Count the partitions, with a pause now and then."""
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
    """Cluster totals. A controller that is not active reports them too, as Kafka's do."""
    for name, text, value in (
        ("activecontrollercount", "1 on the active controller, else 0", int(is_active)),
        ("activebrokercount", "Registered brokers that are not fenced", counts.active_brokers),
        ("fencedbrokercount", "Registered brokers that are fenced", counts.fenced_brokers),
        ("globaltopiccount", "Topics of the cluster", counts.topics),
        ("globalpartitioncount", "Partitions of the cluster", counts.partitions),
        ("offlinepartitionscount", "Partitions without leader", counts.offline_partitions),
        (
            "preferredreplicaimbalancecount",
            "Partitions that another replica than the preferred one leads",
            counts.preferred_imbalance,
        ),
    ):
        yield single(_PREFIX + name, text, value)
    yield single(
        "kraftbox_local_log_ineligible_replicas",
        "Replicas that have too little of the log locally to be elected gladly",
        counts.local_logs_short,
    )
    yield single(
        "kraftbox_local_log_preferred_waiting",
        "Partitions whose first replica has too little of the log locally to be preferred",
        counts.preferred_passed_over,
    )


def stats_families(
    stats: ControllerStats, *, applied: int, committed: int, applied_at_ms: int, lag_ms: int
) -> Iterator[Family]:
    """The controller's own counters and offsets; `applied_at_ms` is a wall time."""
    for name, text, value in (
        ("lastappliedrecordoffset", "Offset of the last metadata record applied", applied),
        (
            "lastappliedrecordtimestamp",
            "When the last record applied was written, epoch ms",
            applied_at_ms,
        ),
        ("lastappliedrecordlagms", "Age of the last record applied, ms; 0 when active", lag_ms),
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
            "Sessions that ended without a heartbeat",
            stats.timed_out_heartbeats,
        ),
        (
            "newactivecontrollerscount",
            "Times this node became the active controller",
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
        "Time operations waited to be decided, ms",
        [0.0] * len(QUANTILES),
        stats.processing.count,
    )
    yield stats.processing.family(
        events + "eventqueueprocessingtimems", "Time to decide, replay and append, ms"
    )


def election_families(stats: ControllerStats) -> Iterator[Family]:
    """Elections by what they may have cost."""
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
        "Elections from the eligible leader replicas, which lose nothing",
        stats.by_kind[ElectedAs.ELR],
        "counter",
    )
    yield Family(
        "kraftbox_controller_elections_total",
        "Elections of a leader by their kind",
        "counter",
        [({"kind": word_of(kind)}, count) for kind, count in stats.by_kind.items()],
    )
    yield single(
        "kraftbox_local_log_elections_passed_over_total",
        "Elections that passed over a replica because it has too little of the log locally",
        stats.passed_over,
        "counter",
    )


def recovery_families(counts: RecoveryCounts) -> Iterator[Family]:
    """Unclean recoveries (KIP-966), and what partitions without leader wait for. All are zero on a
    controller that is not active."""
    yield single(
        "kraftbox_unclean_recovery_running",
        "Unclean recoveries that wait for brokers to say how far their logs reach",
        counts.running,
    )
    for name, text, value in (
        ("finished", "Unclean recoveries that elected the longest log", counts.finished),
        ("given_up", "Unclean recoveries that ended without electing it", counts.given_up),
    ):
        yield single(f"kraftbox_unclean_recovery_{name}_total", text, value, "counter")
    yield Family(
        "kraftbox_leaderless_partitions",
        "Partitions without leader by what they wait for",
        "gauge",
        [({"waits_for": waits.value}, counts.waiting[waits]) for waits in WaitsFor],
    )
