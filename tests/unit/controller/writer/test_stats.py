from __future__ import annotations

from controller.configs.topic_settings import LOCAL_LOG_MS
from controller.elections.recovery import RecoveryCounts
from controller.elections.recovery_rules import WaitsFor
from controller.writer.stats import (
    ControllerStats,
    ImageCounts,
    RecentTimes,
    image_families,
    recovery_families,
    stats_families,
)
from metalog.image.local_log import LocalLogTable
from metalog.image.snapshot import local_log_entries
from metalog.image.values import LOSSY_ELECTIONS, ElectedAs
from protocol.metadata import NoOpRecord, PartitionChangeRecord
from testkit.memory.controller import Cluster


def test_elections_are_counted_from_what_is_written() -> None:
    stats = ControllerStats()
    stats.count_elections(
        [
            NoOpRecord(),
            PartitionChangeRecord(isr=[1]),
            PartitionChangeRecord(leader=-1),
            PartitionChangeRecord(leader=1, election_kind=ElectedAs.ISR),
            # the leader stays and gets a new epoch
            PartitionChangeRecord(leader=1, isr=[1]),
            # the partition recovers already: the record does not repeat the recovery state
            PartitionChangeRecord(leader=2, isr=[2], election_kind=ElectedAs.UNCLEAN),
            PartitionChangeRecord(leader=3, election_kind=ElectedAs.ELR),
            *(
                PartitionChangeRecord(leader=1, leader_recovery_state=1, election_kind=kind)
                for kind in LOSSY_ELECTIONS
            ),
        ]
    )
    assert (stats.elections, stats.unclean_elections) == (7, 5)
    assert stats.by_kind == {
        ElectedAs.ISR: 1,
        ElectedAs.PREFERRED: 0,
        ElectedAs.ELR: 1,
        ElectedAs.LAST_KNOWN_LEADER: 1,
        ElectedAs.UNCLEAN: 2,
        ElectedAs.UNCLEAN_RECOVERY: 1,
        ElectedAs.DESIGNATED: 1,
    }


def test_totals_of_an_image() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.register(3)
    cluster.create_topic("t", [1, 2])
    cluster.create_topic("u", [1])
    cluster.fence(1)
    counts = ImageCounts(cluster.view())
    assert list(counts.steps()) == []
    assert (counts.active_brokers, counts.fenced_brokers) == (1, 2)
    assert (counts.topics, counts.partitions, counts.offline_partitions) == (2, 2, 1)
    assert counts.preferred_imbalance == 2
    told = {
        family.name.removeprefix("kafka_controller_kafkacontroller_"): list(family.samples)[0][1]
        for family in image_families(counts, is_active=False)
    }
    assert told == {
        "activecontrollercount": 0,
        "activebrokercount": 1,
        "fencedbrokercount": 2,
        "globaltopiccount": 2,
        "globalpartitioncount": 2,
        "offlinepartitionscount": 1,
        "preferredreplicaimbalancecount": 2,
        "kraftbox_local_log_ineligible_replicas": 0,
        "kraftbox_local_log_preferred_waiting": 0,
    }
    assert counts.hold_for(cluster.image)
    cluster.create_topic("v", [2])
    assert not counts.hold_for(cluster.image)


def test_preferred_leader_stats_depend_on_time() -> None:
    """KIP-1303: the preference changes without a record, so totals hold for one moment only."""
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2], **{LOCAL_LOG_MS: "1000"})
    topic, epoch = cluster.image.topics.by_name["t"], cluster.image.cluster.brokers[1].epoch
    fresh = LocalLogTable.of([((1, epoch), cluster.now_ms - 10, 1, cluster.now_ms)])
    table = local_log_entries(PartitionChangeRecord, fresh)
    cluster.apply([PartitionChangeRecord(topic_id=topic.id, partition_id=0, local_logs=table)])

    def totals() -> tuple[int, int, int, bool]:
        counts = ImageCounts(cluster.view())
        assert list(counts.steps()) == []
        return (
            counts.preferred_imbalance,
            counts.preferred_passed_over,
            counts.local_logs_short,
            counts.hold_for(cluster.image),
        )

    assert totals() == (1, 1, 1, False)
    cluster.advance(989)
    assert totals() == (1, 1, 1, False)
    cluster.advance(1)
    assert totals() == (0, 0, 0, False)


def test_quantiles_of_recent_times() -> None:
    times = RecentTimes()
    for number in range(2000):
        times.add(float(number))
    samples = list(times.family("x", "y").samples)
    assert samples[0] == ({"quantile": "0.50"}, 1488.0)
    assert samples[-1] == ({"__name__": "x_count"}, 2000.0)
    assert list(RecentTimes().family("x", "y").samples)[0][1] == 0.0


def test_failure_counters_have_own_series() -> None:
    """Alerts need each of these counters in a series of its own; none is 0 here."""
    stats = ControllerStats()
    stats.metadata_errors, stats.timed_out_heartbeats, stats.became_active = 3, 4, 5
    stats.by_kind |= {
        ElectedAs.ELR: 7,
        ElectedAs.LAST_KNOWN_LEADER: 2,
        ElectedAs.UNCLEAN_RECOVERY: 4,
    }
    families = stats_families(stats, applied=50, committed=51, applied_at_ms=52, lag_ms=53)
    told = {
        family.name.removeprefix("kafka_controller_"): [value for _, value in family.samples]
        for family in families
    }
    assert told["kafkacontroller_metadataerrorcount"] == [3]
    assert told["kafkacontroller_timedoutbrokerheartbeatcount"] == [4]
    assert told["kafkacontroller_newactivecontrollerscount"] == [5]
    assert told["controllerstats_uncleanleaderelections_total"] == [6]
    assert told["controllerstats_leaderelections_total"] == [13]
    assert told["controllerstats_electionfromeligibleleaderreplicas_total"] == [7]
    kinds = {"isr": 0, "preferred": 0, "elr": 7, "last-known-leader": 2, "unclean": 0}
    assert by_kind(stats) == {**kinds, "unclean-recovery": 4, "designated": 0}
    assert told["kafkacontroller_lastappliedrecordoffset"] == [50]
    assert told["kafkacontroller_lastcommittedrecordoffset"] == [51]
    assert told["kafkacontroller_lastappliedrecordtimestamp"] == [52]
    assert told["kafkacontroller_lastappliedrecordlagms"] == [53]


def test_unclean_recoveries() -> None:
    counts = RecoveryCounts()
    counts.running, counts.finished, counts.given_up = 2, 3, 4
    counts.waiting[WaitsFor.LAST_KNOWN] = 5
    running, finished, given_up, waiting = recovery_families(counts)
    assert [list(family.samples)[0][1] for family in (running, finished, given_up)] == [2, 3, 4]
    assert (finished.kind, finished.name) == ("counter", "kraftbox_unclean_recovery_finished_total")
    assert {labels["waits_for"]: value for labels, value in waiting.samples} == {
        "clean-candidate": 0,
        "last-known": 5,
        "any-replica": 0,
        "answers": 0,
        "operator": 0,
    }


def by_kind(stats: ControllerStats) -> dict[str, float]:
    families = stats_families(stats, applied=0, committed=0, applied_at_ms=0, lag_ms=0)
    (family,) = (one for one in families if one.name == "kraftbox_controller_elections_total")
    return {labels["kind"]: value for labels, value in family.samples}


def test_names() -> None:
    names = {
        family.name
        for family in stats_families(
            ControllerStats(), applied=5, committed=4, applied_at_ms=1, lag_ms=0
        )
    }
    assert "kafka_controller_controllerstats_uncleanleaderelections_total" in names
    assert "kafka_controller_controllereventmanager_eventqueueprocessingtimems" in names
    assert "kafka_controller_kafkacontroller_lastappliedrecordlagms" in names
