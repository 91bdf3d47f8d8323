from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import ReplicaKey
from metalog.quorum.peers import Traffic
from metalog.quorum.stats import QuorumStats, WindowedTimes, quorum_families


def test_a_commit_is_timed_from_its_append():
    stats = QuorumStats()
    stats.observe(Role.LEADER, 10, 10, 0.0)
    stats.observe(Role.LEADER, 12, 10, 100.0)
    stats.observe(Role.LEADER, 15, 10, 110.0)
    stats.observe(Role.LEADER, 15, 12, 130.0)
    assert stats.commit_times.average_and_max(130.0) == (30.0, 30.0)
    stats.observe(Role.LEADER, 15, 15, 210.0)
    assert stats.commit_times.average_and_max(210.0) == (65.0, 100.0)
    assert stats.appended == 5
    assert stats.fetched == 0


def test_a_deposed_leader_times_no_commits():
    stats = QuorumStats()
    stats.observe(Role.LEADER, 10, 10, 0.0)
    stats.observe(Role.LEADER, 12, 10, 1.0)
    stats.observe(Role.FOLLOWER, 14, 14, 2.0)
    assert math.isnan(stats.commit_times.average_and_max(2.0)[0])
    assert stats.fetched == 2


def test_truncated_records_are_not_taken_back():
    stats = QuorumStats()
    for end_offset in (10, 14, 12, 13):
        stats.observe(Role.FOLLOWER, end_offset, None, 0.0)
    assert stats.fetched == 5


def test_an_election_lasts_until_a_leader_is_known():
    stats = QuorumStats()
    stats.observe(Role.PROSPECTIVE, 0, None, 100.0)
    stats.observe(Role.CANDIDATE, 0, None, 150.0)
    stats.leader_known(False, 180.0)
    assert stats.election_times.average_and_max(180.0) == (80.0, 80.0)
    stats.leader_known(False, 500.0)
    assert stats.elections == 1, "a leader that was found without standing"
    stats.leader_known(True, 500.0)
    assert stats.election_times.average_and_max(500.0) == (40.0, 80.0)


def test_old_windows_are_forgotten():
    times = WindowedTimes()
    times.add(100.0, 0.0)
    times.add(10.0, 31_000.0)
    assert times.average_and_max(32_000.0) == (55.0, 100.0)
    assert times.average_and_max(61_000.0) == (10.0, 10.0)
    assert math.isnan(times.average_and_max(100_000.0)[1])


def told(stats: QuorumStats, now_ms: float) -> dict[str, Any]:
    """What a scrape of a follower in epoch 7 reads, the common beginning of the names apart."""
    quorum = SimpleNamespace(
        core=SimpleNamespace(role=Role.FOLLOWER, voted=ReplicaKey(3), voters=(1, 2, 3)),
        stats=stats,
        leader=lambda: (2, 7),
        high_watermark=40,
        log_end_offset=50,
        peers=SimpleNamespace(traffic=Traffic()),
    )
    prefix = "kafka_server_raftmetrics_"
    return {
        family.name.removeprefix(prefix): list(family.samples)[0][1]
        for family in quorum_families(cast(Any, quorum), now_ms)
    }


def test_what_stands_still_on_a_sole_voter_moves_on_others():
    stats = QuorumStats()
    for second in range(10):
        stats.observe(Role.FOLLOWER, second * 30, None, second * 1000.0)
    stats.observe(Role.PROSPECTIVE, 270, None, 10_000.0)
    stats.leader_known(False, 10_080.0)
    shown = told(stats, 10_080.0)
    assert shown["fetch_records_rate"] > 1
    assert shown["append_records_rate"] == 0
    assert (shown["election_latency_avg"], shown["election_latency_max"]) == (80.0, 80.0)
    assert (shown["current_leader"], shown["current_epoch"], shown["current_vote"]) == (2, 7, 3)
    assert (shown["high_watermark"], shown["log_end_offset"]) == (40, 50)
    assert shown["kraftbox_quorum_fetched_records_total"] == 270
