"""News of a consumer's fetch session: the partitions to check, and their notifications
(KIP-227)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.fetch.consumer import Consumer as ConsumerFetch
from broker.replication.sessions.session_watch import SessionWatch
from protocol.messages.fetch import FetchRequest, FetchResponse
from testkit.memory.broker import Harness, batch, settle
from testkit.memory.replicas import Cluster
from tests.unit.broker.fetch.fetched import values


class Consumer:
    """A session over some partitions of one topic."""

    def __init__(self, partitions: int = 3) -> None:
        self.h = Harness()
        self.h.create_topic(partitions=partitions)
        self.session_id = self.epoch = 0
        self.session_id = self.fetch(*((index, 0) for index in range(partitions))).session_id

    def fetch(self, *named: tuple[int, int], **fields: Any) -> Any:
        """Send the next request, with these partitions and offsets. Returns: the response, or a
        future."""
        wanted = [
            FetchRequest.FetchPartition(partition=index, fetch_offset=at, partition_max_bytes=999)
            for index, at in named
        ]
        topics = [FetchRequest.FetchTopic(topic="t", partitions=wanted)] if wanted else []
        fields |= {"session_id": self.session_id, "session_epoch": self.epoch, "topics": topics}
        self.epoch += 1
        return self.h.call(FetchRequest(min_bytes=fields.pop("min_bytes", 1), **fields), 12)

    def fill(self, index: int, *records: bytes) -> None:
        assert self.h.produce(batch(*records), index=index).error_code == 0

    @property
    def watch(self) -> SessionWatch:
        (session,) = self.h.context.sessions
        return session.watch


def told(answer: FetchResponse) -> list[int]:
    return [data.partition_index for topic in answer.responses for data in topic.partitions]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the partitions that fetches have read."""
    read, seen = ConsumerFetch.read, list[int]()

    def noted(self: ConsumerFetch, partition: Any, *args: Any, **fields: Any) -> Any:
        seen.append(partition.index)
        return read(self, partition, *args, **fields)

    monkeypatch.setattr(ConsumerFetch, "read", noted)
    return seen


async def test_a_fetch_looks_at_partitions_with_news_alone(looks: list[int]) -> None:
    c = Consumer()
    assert looks == [0, 1, 2]
    c.fetch()
    assert looks == [0, 1, 2]
    c.fill(1, b"a")
    assert told(c.fetch()) == [1]
    assert told(c.fetch((1, 1))) == []
    c.fetch()
    assert looks == [0, 1, 2, 1, 1]


async def test_partitions_without_news_are_counted_as_fetched() -> None:
    """As in Kafka: the fetch rate does not fall when there are no new records."""
    c = Consumer(1)
    c.fetch()
    c.fetch()
    assert c.h.partition().counters.fetches == 3


async def test_session_without_client_is_notified_once() -> None:
    """The session may stay for long after its client is gone, and must not cost each append."""
    c = Consumer()
    assert c.h.partition("t", 1).subscriptions.watches() == [c.watch]
    c.fill(1, b"a")
    assert c.h.partition("t", 1).subscriptions.watches() == []
    assert c.h.partition("t", 2).subscriptions.watches() == [c.watch]


async def test_fetch_that_waits_for_bytes_is_notified_of_each_batch() -> None:
    c = Consumer()
    size = len(batch(b"a"))
    c.fill(0, b"a")
    waiting = c.fetch(max_wait_ms=500, min_bytes=3 * size)
    c.fill(0, b"b")
    await settle()
    assert not waiting.done()
    c.fill(2, b"c")
    answer = await waiting
    assert [values(data) for topic in answer.responses for data in topic.partitions] == [
        [b"a", b"b"],
        [b"c"],
    ]


async def test_a_sessions_next_fetch_ends_the_wait_of_the_one_before() -> None:
    c = Consumer()
    first, second = c.fetch(max_wait_ms=500), c.fetch(max_wait_ms=500)
    await settle()
    assert (first.done(), second.done()) == (True, False)
    c.fill(2, b"a")
    assert (told(await first), told(await second)) == ([], [2])


async def test_closed_session_is_not_notified() -> None:
    c = Consumer()
    waiting = c.fetch(max_wait_ms=500)
    c.h.context.sessions.forget(c.session_id)
    assert told(await waiting) == []
    assert [one.subscriptions.watches() for one in c.h.replicas] == [[], [], []]


async def test_full_fetch_of_evicted_session_returns_all_partitions() -> None:
    """The client would treat a response without them as broken."""
    c = Consumer()
    c.session_id = c.epoch = 0
    waiting = c.fetch((0, 0), (1, 0), max_wait_ms=500)
    for session in list(c.h.context.sessions):
        c.h.context.sessions.forget(session.session_id)
    assert told(await waiting) == [0, 1]
    assert [one.subscriptions.watches() for one in c.h.replicas] == [[], [], []]


async def test_a_session_may_end_while_its_fetch_reads_off_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fetch goes on waiting without its session, and leaves nothing behind."""
    c = Consumer(1)
    c.fill(0, b"a")
    monkeypatch.setattr(type(c.h.partition().log), "is_recent", lambda log, offset: False)
    waiting = c.fetch((0, 0), max_wait_ms=500, min_bytes=2 * len(batch(b"a")))
    c.h.context.sessions.forget(c.session_id)
    await settle()
    assert not waiting.done()
    c.fill(0, b"b")
    (data,) = (await waiting).responses[0].partitions
    assert values(data) == [b"a", b"b"]
    assert c.h.partition().subscriptions.watches() == []


async def test_fetch_without_session_is_notified_only_while_waiting() -> None:
    h = Harness()
    h.create_topic()
    waiting = h.fetch(0, max_wait_ms=500)
    assert len(h.partition().subscriptions.watches()) == 1
    h.produce(batch(b"a"))
    await waiting
    assert h.partition().subscriptions.watches() == []


async def test_follower_learns_of_retention_at_once() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a", b"b")
    c.fetch(2, times=3)
    request = c.request(2, 1)
    assert request is not None
    request.max_wait_ms = 500
    waiting = c[1].call(request)
    c[1].log.configure(c[1].log.config.__class__(retention_bytes=0, segment_bytes=1))
    assert c[1].log.retention(c[1].clock.now_ms()) == 1
    c.take(2, 1, await waiting)
    assert c[2].log.log_start_offset == 2


async def test_session_watch_follows_recreated_partition() -> None:
    """Both have the same key, but the deleted partition notifies no session."""
    c, other = Consumer(1), Harness()
    other.create_topic()
    old, new = c.h.partition(), other.partition()
    ((key, _),) = c.watch._covered.items()
    c.watch.cover(key, new)
    assert (old.subscriptions.watches(), new.subscriptions.watches()) == ([], [c.watch])
