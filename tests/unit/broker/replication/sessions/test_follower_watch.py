"""Partitions that a follower's fetch checks, where thousands have news."""

from __future__ import annotations

from broker.replication.sessions.follower_watch import AGAIN_MIN, LOOKED_AT_MAX, FollowerWatch
from broker.replication.subscriptions.subscriptions import WatchKey

TOPIC = b"a topic of many.."
MANY = 2 * LOOKED_AT_MAX + 200


def keys(count: int, *, first: int = 0) -> list[WatchKey]:
    return [(TOPIC, index) for index in range(first, first + count)]


def fetch(
    watch: FollowerWatch, *named: WatchKey, settles: bool = False
) -> tuple[list[WatchKey], bool]:
    """Fetch. Returns: the partitions to check, and whether more are left."""
    watch.requested(named, ())
    looked_at = watch.turn()
    more = watch.more(len(looked_at))
    for key in looked_at:
        (watch.settled if settles else watch.told)(key)
    return looked_at, more


def touched(count: int) -> FollowerWatch:
    watch = FollowerWatch()
    for key in keys(count):
        watch.touched(key, 0)
    return watch


def test_follower_watch_checks_partitions_with_news_in_batches() -> None:
    watch = touched(MANY)
    seen, mores = [], []
    for _ in range(3):
        looked_at, more = fetch(watch, settles=True)
        assert len(looked_at) <= LOOKED_AT_MAX
        seen += looked_at
        mores.append(more)
    assert (seen, mores) == (keys(MANY), [True, True, False])


def test_follower_watch_checks_partitions_named_in_the_request_first() -> None:
    """The request contains the replica's offset, on which commits depend."""
    watch = touched(MANY)
    named = keys(3, first=MANY - 3)
    looked_at, more = fetch(watch, *named)
    assert more
    assert looked_at == named + keys(LOOKED_AT_MAX)


def test_follower_watch_checks_all_named_partitions() -> None:
    named = keys(MANY)
    assert fetch(FollowerWatch(), *named) == (named, False)


def test_follower_watch_checks_unsettled_partitions_in_each_fetch() -> None:
    watch = touched(3)
    assert [fetch(watch), fetch(watch)] == [(keys(3), False), (keys(3), False)]


def test_follower_watch_checks_many_unsettled_partitions_in_rounds() -> None:
    """A fetch may wait at the end of each round; otherwise leader and follower would do nothing
    else."""
    watch = touched(MANY)
    first = [fetch(watch)[1] for _ in range(10)]
    assert False in first
    while fetch(watch)[1]:
        pass
    for _ in range(2):
        fetches = [fetch(watch) for _ in range(3)]
        assert [more for _, more in fetches] == [True, True, False]
        assert sorted(key for looked_at, _ in fetches for key in looked_at) == keys(MANY)


def test_follower_watch_checks_unsettled_partitions_despite_much_news() -> None:
    """Otherwise a follower would join no ISR while its leader is busy."""
    watch = touched(AGAIN_MIN)
    fetch(watch)
    waiting = set(keys(AGAIN_MIN))
    for _ in range(10):
        for key in keys(LOOKED_AT_MAX // 2, first=AGAIN_MIN):
            watch.touched(key, 1)
        looked_at, _ = fetch(watch)
        assert waiting <= set(looked_at)
        for key in set(looked_at) - waiting:
            watch.settled(key)


def test_follower_watch_checks_partitions_touched_after_a_check_next() -> None:
    watch = touched(MANY)
    for _ in range(3):
        fetch(watch)
    watch.touched((TOPIC, 7), 0)
    watch.interrupted((TOPIC, 8))
    looked_at, _ = fetch(watch)
    assert looked_at[:2] == [(TOPIC, 7), (TOPIC, 8)]


def test_follower_watch_omits_partitions_removed_from_the_session() -> None:
    watch = touched(2)
    fetch(watch)
    watch.requested((), keys(1))
    assert watch.turn() == keys(1, first=1)
    watch.close()
    assert watch.turn() == []


def test_follower_watch_keeps_a_partition_settled_by_another_fetch_at_rest() -> None:
    """A waiting fetch checks again a partition that another fetch has settled."""
    watch = touched(1)
    (key,) = keys(1)
    fetch(watch, settles=True)
    watch.told(key)
    assert fetch(watch) == ([], False)
