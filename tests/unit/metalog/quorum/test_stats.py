from __future__ import annotations

import math

from metalog.quorum.core.roles import Role
from metalog.quorum.stats import QuorumStats, WindowedTimes


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
