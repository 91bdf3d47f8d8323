"""Fetch sessions: epochs, news, and eviction when the cache is full (B31)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import ClassVar

import pytest

from broker.replication.sessions.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_EPOCH,
    FetchPlan,
    FetchSessionCache,
    PartitionKey,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest

Wish = FetchRequest.FetchPartition


def wish(index: int, offset: int = 0) -> tuple[PartitionKey, Wish]:
    return ("t", index), Wish(partition=index, fetch_offset=offset)


class Client:
    def __init__(self, cache: FetchSessionCache[Wish]) -> None:
        self.cache = cache
        self.now_ms = 0.0

    def fetch(
        self,
        session_id: int,
        epoch: int,
        *indexes: int,
        offset: int = 0,
        forget: Iterable[int] = (),
        privileged: bool = False,
        uses_topic_ids: bool = False,
        absent: Iterable[int] = (),
    ) -> FetchPlan[Wish]:
        return self.cache.begin(
            session_id=session_id,
            session_epoch=epoch,
            wanted=[wish(index, offset) for index in indexes],
            forgotten=[("t", index) for index in forget],
            privileged=privileged,
            uses_topic_ids=uses_topic_ids,
            now_ms=self.now_ms,
            absent={("t", index) for index in absent},
        )


def new(slots_max: int = 3, partitions_max: int = 1_000) -> Client:
    return Client(FetchSessionCache(slots_max, random.Random(1), partitions_max=partitions_max))


def indexes(plan: FetchPlan[Wish]) -> list[int]:
    return [request.partition for _, request in plan.partitions]


def test_fetch_session_adds_changes_and_removes_partitions() -> None:
    client = new()
    first = client.fetch(0, INITIAL_EPOCH, 0, 1)
    assert not first.incremental
    assert first.session_id > 0
    second = client.fetch(first.session_id, 1)
    assert second.incremental
    assert indexes(second) == [0, 1]
    third = client.fetch(first.session_id, 2, 1, 2, offset=7, forget=[0])
    assert [(r.partition, r.fetch_offset) for _, r in third.partitions] == [(1, 7), (2, 7)]
    assert client.cache.partition_count == 2


def test_every_field_of_a_changed_partition_is_taken_over() -> None:
    client = new()
    session_id = client.fetch(0, INITIAL_EPOCH, 0).session_id
    changed = Wish(
        partition=0,
        current_leader_epoch=4,
        fetch_offset=5,
        last_fetched_epoch=3,
        log_start_offset=2,
        partition_max_bytes=9,
        replica_directory_id=bytes(range(16)),
        high_watermark=1,
    )
    plan = client.cache.begin(
        session_id=session_id,
        session_epoch=1,
        wanted=[(("t", 0), changed)],
        forgotten=(),
        privileged=False,
        uses_topic_ids=False,
        now_ms=0,
    )
    assert plan.partitions == [(("t", 0), changed)]


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (99, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, -2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_requests_out_of_turn(session_id: int | None, epoch: int, code: ErrorCode) -> None:
    client = new()
    mine = client.fetch(0, INITIAL_EPOCH, 0).session_id
    with pytest.raises(ApiError) as caught:
        client.fetch(mine if session_id is None else session_id, epoch)
    assert caught.value.code is code
    # The session epoch has not advanced.
    assert client.fetch(mine, 1).incremental


def test_names_and_ids_do_not_mix_in_one_session() -> None:
    client = new()
    session_id = client.fetch(0, INITIAL_EPOCH, 0).session_id
    with pytest.raises(ApiError) as caught:
        client.fetch(session_id, 1, uses_topic_ids=True)
    assert caught.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_and_fetches_without_a_session() -> None:
    client = new()
    session_id = client.fetch(0, INITIAL_EPOCH, 0).session_id
    plan = client.fetch(session_id, FINAL_EPOCH, 1)
    assert (plan.session, plan.incremental, indexes(plan)) == (None, False, [1])
    assert len(client.cache) == 0


def test_a_new_session_replaces_the_one_it_names() -> None:
    client = new()
    old = client.fetch(0, INITIAL_EPOCH, 0).session_id
    fresh = client.fetch(old, INITIAL_EPOCH, 0).session_id
    assert fresh != old
    assert len(client.cache) == 1


def test_a_session_without_partitions_ends() -> None:
    client = new()
    session_id = client.fetch(0, INITIAL_EPOCH, 0).session_id
    plan = client.fetch(session_id, 1, forget=[0])
    assert (plan.session_id, plan.partitions) == (0, [])
    assert len(client.cache) == 0


def test_epochs_wrap_to_one() -> None:
    client = new()
    plan = client.fetch(0, INITIAL_EPOCH, 0)
    assert plan.session is not None
    plan.session.epoch = MAX_EPOCH
    client.fetch(plan.session_id, MAX_EPOCH)
    assert client.fetch(plan.session_id, 1).incremental


def test_only_news_is_answered_and_errors_are_news_until_they_are_gone() -> None:
    client = new()
    client.fetch(0, INITIAL_EPOCH, 0)
    session = next(iter(client.cache))
    key = ("t", 0)
    assert session.news(key, (0, 10), force=False)
    assert not session.news(key, (0, 10), force=False)
    assert session.news(key, (0, 11), force=False)
    assert session.news(key, (6, 11), force=True)
    assert session.news(key, (6, 11), force=True)
    assert session.news(key, (0, 11), force=False)


def test_a_served_partition_waits_for_the_others() -> None:
    client = new()
    plan = client.fetch(0, INITIAL_EPOCH, 0, 1, 2)
    assert plan.session is not None
    plan.session.watch.served(("t", 0))
    assert indexes(client.fetch(plan.session_id, 1)) == [1, 2, 0]


def test_a_full_cache_refuses_an_equal_claim() -> None:
    client = new(slots_max=1)
    first = client.fetch(0, INITIAL_EPOCH, 0).session_id
    assert client.fetch(0, INITIAL_EPOCH, 0).session_id == 0
    assert client.fetch(first, 1).incremental


def test_a_follower_displaces_a_consumer_but_not_the_reverse() -> None:
    client = new(slots_max=1)
    consumer = client.fetch(0, INITIAL_EPOCH, 0, 1, 2).session_id
    follower = client.fetch(0, INITIAL_EPOCH, 0, privileged=True).session_id
    assert follower > 0
    with pytest.raises(ApiError):
        client.fetch(consumer, 1)
    assert client.fetch(0, INITIAL_EPOCH, 0, 1, 2).session_id == 0
    assert client.cache.evictions == 1


def test_an_unused_session_gives_way_after_the_eviction_time() -> None:
    client = new(slots_max=2)
    old = client.fetch(0, INITIAL_EPOCH, 0, 1).session_id
    used = client.fetch(0, INITIAL_EPOCH, 0, 1).session_id
    client.now_ms = 120_001
    client.fetch(used, 1)
    assert client.fetch(0, INITIAL_EPOCH, 0).session_id > 0
    assert client.fetch(used, 2).incremental
    with pytest.raises(ApiError):
        client.fetch(old, 1)


def test_a_longer_list_displaces_a_shorter_one_that_had_its_time() -> None:
    client = new(slots_max=2)
    short = client.fetch(0, INITIAL_EPOCH, 0).session_id
    client.fetch(0, INITIAL_EPOCH, 0, 1)
    client.now_ms = 100_000
    client.fetch(short, 1)
    assert client.fetch(0, INITIAL_EPOCH, 0, 1, 2).session_id == 0
    client.now_ms = 121_000
    client.fetch(short, 2)
    assert client.fetch(0, INITIAL_EPOCH, 0, 1, 2).session_id > 0


def test_ten_thousand_sessions_stay_within_the_slots() -> None:
    client = new(slots_max=100)
    for number in range(10_000):
        client.now_ms += 10_000
        client.fetch(0, INITIAL_EPOCH, *range(number % 3 + 1))
        assert len(client.cache) <= 100


def test_no_slots_means_no_sessions() -> None:
    client = new(slots_max=0)
    plan = client.fetch(0, INITIAL_EPOCH, 0)
    assert (plan.session_id, indexes(plan)) == (0, [0])


def test_partition_removed_from_the_session_during_a_fetch_is_answered_once() -> None:
    """A waiting fetch answers its own partitions, although the next request has arrived."""
    client = new()
    plan = client.fetch(0, INITIAL_EPOCH, 0, 1)
    session = plan.session
    assert session is not None
    client.fetch(plan.session_id, 1, forget=[0])
    assert session.news(("t", 0), (1,), force=False)
    assert ("t", 0) not in session.partitions


def test_news_of_a_partition_removed_from_the_session_is_ignored() -> None:
    """A partition may report news while the request that drops it is processed."""
    client = new()
    plan = client.fetch(0, INITIAL_EPOCH, 0, 1)
    assert plan.session is not None
    client.fetch(plan.session_id, 1, forget=[0])
    plan.session.watch.touched(("t", 0), 1)
    assert indexes(client.fetch(plan.session_id, 2)) == [1]


def test_no_two_sessions_have_one_id() -> None:
    class Repeating(random.Random):
        numbers: ClassVar[list[int]] = [7, 7, 7, 8]

        def randrange(self, *_: int) -> int:  # type: ignore[override]
            return self.numbers.pop(0)

    client = Client(FetchSessionCache(3, Repeating()))
    ids = [client.fetch(0, INITIAL_EPOCH, 0).session_id for _ in range(2)]
    assert ids == [7, 8]


def test_a_consumer_that_names_an_absent_partition_has_no_session() -> None:
    """B31: a session has the cost of its existing partitions only."""
    client = new()
    plan = client.fetch(0, INITIAL_EPOCH, 0, 1, 2, absent=[2])
    assert (plan.session, indexes(plan)) == (None, [0, 1, 2])
    assert client.cache.partition_count == len(client.cache) == 0


def test_a_session_that_gets_an_absent_partition_ends() -> None:
    """The client opens another session, and so learns when the partition exists."""
    client = new()
    session_id = client.fetch(0, INITIAL_EPOCH, 0, 1).session_id
    plan = client.fetch(session_id, 1, 7, absent=[7])
    assert (plan.session, plan.incremental) == (None, False)
    assert indexes(plan) == [0, 1, 7]
    assert client.cache.partition_count == len(client.cache) == 0


def test_a_follower_s_session_leaves_absent_partitions_out() -> None:
    client = new()
    plan = client.fetch(0, INITIAL_EPOCH, 0, 1, privileged=True, absent=[1])
    assert indexes(plan) == [0, 1]
    plan = client.fetch(plan.session_id, 1, 2, 3, privileged=True, absent=[3])
    assert indexes(plan)[-1] == 3
    (session,) = client.cache
    assert {index for _, index in session.partitions} == {0, 2}
    assert client.cache.partition_count == 2


def test_sessions_have_a_budget_of_partitions() -> None:
    client = new(slots_max=1_000, partitions_max=10)
    assert client.fetch(0, INITIAL_EPOCH, *range(11)).session is None
    for _ in range(2):
        assert client.fetch(0, INITIAL_EPOCH, *range(5)).session is not None
    assert client.fetch(0, INITIAL_EPOCH, 0).session is None
    client.now_ms += 200_000
    assert client.fetch(0, INITIAL_EPOCH, *range(8)).session is not None
    assert (len(client.cache), client.cache.partition_count) == (1, 8)
    assert client.cache.evictions == 2


def test_a_session_that_outgrows_the_budget_ends() -> None:
    client = new(partitions_max=10)
    session_id = client.fetch(0, INITIAL_EPOCH, *range(8)).session_id
    plan = client.fetch(session_id, 1, 8, 9, 10)
    assert (plan.session, plan.incremental) == (None, False)
    assert len(indexes(plan)) == 11
    assert client.cache.partition_count == len(client.cache) == 0


def test_the_partitions_of_all_sessions_are_counted_through_every_change() -> None:
    client = new()
    session_id = client.fetch(0, INITIAL_EPOCH, *range(8)).session_id
    client.fetch(session_id, 1, 8, forget=[0, 1])
    client.fetch(0, INITIAL_EPOCH, 0)
    assert client.cache.partition_count == sum(s.size for s in client.cache) == 8
    client.fetch(session_id, FINAL_EPOCH)
    assert client.cache.partition_count == 1
