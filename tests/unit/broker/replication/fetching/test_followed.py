"""Partitions of a fetcher: their names in requests, and their pauses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.replication.fetching.followed import Followed, FollowedPartitions, PartitionId


def replica(index: int = 0) -> Any:
    return SimpleNamespace(topic_id=b"t", index=index)


def following(*indexes: int) -> FollowedPartitions:
    found = FollowedPartitions(35.0)
    for index in indexes:
        found.follow(replica(index))
    return found


def found_in(all_of_them: FollowedPartitions, partition: Any) -> tuple[PartitionId, Followed]:
    key, followed = all_of_them.find(partition)
    assert followed is not None
    return key, followed


def test_recreated_replica_is_not_the_followed_one() -> None:
    partitions = following(0)
    other = replica(0)
    assert partitions.find(other)[1] is None
    assert not partitions.unfollow(other) and len(partitions) == 1
    partitions.follow(other)
    assert partitions.unfollow(other) and len(partitions) == 0


def test_pauses_of_two_replicas_with_one_id_may_end_at_the_same_time() -> None:
    """Regression: the heap compared the replicas themselves, which have no order."""
    partitions, first, second = FollowedPartitions(35.0), replica(), replica()
    for one in (first, second):
        partitions.follow(one)
        key, followed = found_in(partitions, one)
        partitions.hold_until(key, followed, 5.0)
    assert not partitions.end_pauses(4.0)
    assert partitions.end_pauses(5.0)
    assert not found_in(partitions, second)[1].paused
    assert partitions.next_pause_ms is None


def test_backoff_of_a_partition_grows_with_its_failures() -> None:
    partitions, one = FollowedPartitions(35.0), replica()
    partitions.follow(one)
    key, followed = found_in(partitions, one)
    ends = []
    for _ in range(4):
        partitions.back_off(key, followed, 0.0)
        ends.append(partitions.next_pause_ms)
        partitions.end_pauses(100.0)
    assert ends == [10.0, 20.0, 35.0, 35.0]


def test_request_names_served_partitions_before_unserved_ones() -> None:
    partitions = following(*range(5))
    served = partitions.take(9, 2)
    assert served == [(b"t", 0), (b"t", 1)]
    for key in served:
        followed = partitions.by_id[key]
        followed.heard = True
        partitions.name(key, followed)
    assert partitions.take(3, 9) == [*served, (b"t", 2)]
    assert partitions.take(9, 0) == []
    assert partitions.take_all() == [(b"t", 3), (b"t", 4)]


def test_paused_partition_leaves_the_session_and_is_forgotten_once() -> None:
    partitions = following(0, 1)
    for followed in partitions:
        followed.in_session = True
    partitions.in_session = 2
    key, followed = (b"t", 1), list(partitions)[1]
    partitions.hold(key, followed)
    assert partitions.in_session == 1 and key not in partitions.unheard
    (topic,) = partitions.take_forgotten()
    assert topic.partitions == [1] and partitions.take_forgotten() == []
    partitions.name_all()
    assert list(partitions.changed) == [(b"t", 0)]
