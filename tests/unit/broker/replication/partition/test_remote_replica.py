"""A leader's view of a follower: caught up is a time, not a distance (KIP-16)."""

from __future__ import annotations

from broker.replication.partition.remote_replica import RemoteReplica, laggards
from testkit.memory.replicas import LAG_MS


def test_an_append_between_read_and_calculation_does_no_harm() -> None:
    """KIP-16: the log end at the time of the read counts, not that of a moment later."""
    remote = RemoteReplica()
    leader_end_at_read = 10
    remote.fetched(10, 0, 1, leader_end_at_read, 1000.0)  # the leader's log ends at 20 by now
    assert remote.caught_up_ms == 1000.0
    assert remote.is_in_sync(20, 1000.0 + LAG_MS, LAG_MS)


def test_always_one_fetch_behind_never_leaves() -> None:
    remote = RemoteReplica()
    for end in range(1000):
        now_ms = end * 400.0
        remote.fetched(end, 0, 1, end + 1, now_ms)  # one more each time, never the end
        if end > 0:
            assert remote.is_in_sync(end + 1, now_ms + 399.0, 800.0)


def test_laggards_excludes_members_without_a_remote_replica() -> None:
    found = laggards({}, [1, 2], leader_end=5, now_ms=0.0, lag_max_ms=LAG_MS)
    assert found == frozenset()


def test_caught_up_is_a_time_not_a_distance() -> None:
    # KIP-16: a follower one fetch behind under steady appends is in sync as of the fetch before.
    remote = RemoteReplica()
    end = 0
    for step in range(1, 10):
        now_ms = step * 100.0
        remote.fetched(end, 0, 1, end + 5, now_ms)
        end += 5
        if step > 1:
            assert remote.caught_up_ms == now_ms - 100.0
    stuck = remote.caught_up_ms
    remote.fetched(end - 5, 0, 1, end + 50, 2000.0)
    assert remote.caught_up_ms == stuck
    remote.fetched(end + 50, 0, 1, end + 50, 2100.0)
    assert remote.caught_up_ms == 2100.0
