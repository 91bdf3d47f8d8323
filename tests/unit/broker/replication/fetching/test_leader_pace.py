"""Pace of the requests to a leader: backoffs, and probes while its metadata is behind."""

from __future__ import annotations

from broker.replication.fetching.leader_pace import (
    BEHIND_FIRST_MS,
    NAMED_MAX,
    PROBED_MIN,
    LeaderPace,
)


def test_backoff_doubles_with_each_failure_up_to_its_limit() -> None:
    pace = LeaderPace(35.0)
    pauses = []
    for _ in range(4):
        pace.failed(100.0)
        pauses.append(pace.pause_until_ms - 100.0)
    assert pauses == [10.0, 20.0, 35.0, 35.0]
    pace.answered()
    pace.failed(100.0)
    assert pace.pause_until_ms == 110.0


def test_backoff_is_skipped_for_the_first_reconnect_alone() -> None:
    pace = LeaderPace(1_000.0)
    pace.failed(0.0)
    pace.try_once()
    assert pace.pause_until_ms == 0.0
    pace.failed(0.0)
    pace.try_once()
    assert pace.pause_until_ms == 20.0
    pace.hurry()
    assert pace.pause_until_ms == 0.0


def test_leader_behind_receives_few_partitions_after_a_growing_pause() -> None:
    """Each refusal costs the leader time that it needs to catch up."""
    pace, now_ms, pauses = LeaderPace(1_000.0), 0.0, []
    for _ in range(6):
        pace.learn(now_ms, served=False, behind=True)
        assert pace.probe_at_ms is not None and pace.unserved_max == 0
        pauses.append(pace.probe_at_ms - now_ms)
        assert not pace.end_probe_pause(pace.probe_at_ms - 1)
        now_ms = pace.probe_at_ms
        assert pace.end_probe_pause(now_ms) and not pace.end_probe_pause(now_ms)
        assert pace.unserved_max == PROBED_MIN
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 40.0]


def test_success_doubles_the_partitions_of_the_next_request() -> None:
    pace = LeaderPace(1_000.0)
    pace.learn(0.0, served=False, behind=True)
    pace.hurry()
    sizes = []
    for _ in range(7):
        pace.learn(0.0, served=True, behind=False)
        sizes.append(pace.unserved_max)
    assert sizes == [20, 40, 80, 160, 320, NAMED_MAX, NAMED_MAX]
    pace.learn(0.0, served=False, behind=True)
    assert pace.probe_at_ms == BEHIND_FIRST_MS


def test_leader_that_serves_some_partitions_and_is_behind_has_a_longer_pause() -> None:
    """It has more work left than one that serves none yet."""
    pace = LeaderPace(1_000.0)
    pace.learn(0.0, served=True, behind=True)
    assert pace.probe_at_ms == 10.0 and pace.unserved_max == 0
