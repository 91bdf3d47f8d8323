"""read_committed fetches: lists of aborted transactions, and wake-ups by the last stable offset
(T5)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from protocol.batch.control import build_end_txn_marker
from protocol.batch.header import iter_batches
from protocol.batch.records import Producer
from protocol.messages.fetch import FetchRequest
from testkit.memory.broker import NODE, OTHER, Harness, batch, settle
from tests.unit.broker.fetch.fetched import values

READ_COMMITTED = 1


def write(h: Harness, producer_id: int, sequence: int, value: bytes = b"v", index: int = 0) -> None:
    """Append one record of a transaction."""
    data = batch(value, producer=Producer(producer_id, 0, sequence, transactional=True))
    h.replicas.append_own(h.partition("t", index), data, now_ms=0)


def end(h: Harness, producer_id: int, *, commit: bool = True, index: int = 0) -> None:
    """Append the end marker of a transaction."""
    data = build_end_txn_marker(producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=0)
    h.replicas.append_own(h.partition("t", index), data, now_ms=0)


def waiting_fetch(h: Harness, offset: int = 0, min_bytes: int = 1, isolation: int = 1) -> Any:
    return h.fetch(offset, max_wait_ms=500, min_bytes=min_bytes, isolation_level=isolation)


async def test_fetch_lists_the_aborted_transactions_of_its_data_only() -> None:
    """As in Kafka, the list ends at the next index entry, not at the last stable offset."""
    h = Harness()
    h.create_topic()
    for at in range(400):
        write(h, 1, at)
        end(h, 1, commit=False)
    data = h.fetch(100, isolation_level=READ_COMMITTED, partition_max_bytes=2_000)
    read = [header.base_offset for header, _ in iter_batches(bytes(data.records))]
    assert read[0] == 100
    listed = [one.first_offset for one in data.aborted_transactions]
    assert listed[: len(read) // 2] == list(range(100, read[-1], 2))
    assert len(listed) < 100


async def test_appends_behind_an_open_transaction_wake_no_read_committed_fetch() -> None:
    h = Harness()
    h.create_topic()
    write(h, 1, 0, b"open")
    waiting = waiting_fetch(h)
    counters = h.partition().counters
    before = counters.fetches
    for _ in range(10):
        h.produce(batch(b"behind"))
        await settle()
    write(h, 2, 0, b"other")
    end(h, 2)
    await settle()
    assert not waiting.done()
    assert counters.fetches == before
    end(h, 1)
    data = (await waiting).responses[0].partitions[0]
    assert values(data)[:11] == [b"open", *[b"behind"] * 10]
    assert counters.fetches == before + 1


async def test_end_of_the_first_of_two_transactions_wakes_a_read_committed_fetch() -> None:
    """The last stable offset moves, but not up to the high watermark."""
    h = Harness()
    h.create_topic()
    write(h, 1, 0, b"first")
    write(h, 2, 0, b"second")
    waiting = waiting_fetch(h)
    end(h, 1)
    assert values((await waiting).responses[0].partitions[0]) == [b"first"]


async def test_open_transaction_does_not_delay_a_read_uncommitted_fetch() -> None:
    h = Harness()
    h.create_topic()
    write(h, 1, 0, b"open")
    waiting = waiting_fetch(h, 1, isolation=0)
    h.produce(batch(b"behind"))
    assert values((await waiting).responses[0].partitions[0]) == [b"behind"]


async def test_plain_appends_without_transactions_wake_a_read_committed_fetch() -> None:
    h = Harness()
    h.create_topic()
    waiting = waiting_fetch(h)
    h.produce(batch(b"plain"))
    assert values((await waiting).responses[0].partitions[0]) == [b"plain"]


async def test_read_committed_fetch_waits_for_its_minimum_of_stable_bytes() -> None:
    h = Harness()
    h.create_topic()
    write(h, 1, 0, b"x" * 400)
    waiting = waiting_fetch(h, min_bytes=1_000)
    end(h, 1)
    await settle()
    assert not waiting.done()
    write(h, 1, 1, b"x" * 600)
    await settle()
    assert not waiting.done()
    end(h, 1)
    assert len(bytes((await waiting).responses[0].partitions[0].records)) > 1_000


async def test_commit_below_the_marker_does_not_wake_a_read_committed_fetch() -> None:
    """Only a replicated marker makes its transaction stable."""
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], isr=[NODE])
    h.change(isr=[NODE, OTHER])
    write(h, 1, 0, b"open")
    waiting = waiting_fetch(h)
    end(h, 1)
    await settle()
    assert not waiting.done()
    h.change(isr=[NODE])
    assert values((await waiting).responses[0].partitions[0])[0] == b"open"


async def test_session_that_turns_to_read_committed_is_woken_by_the_last_stable_offset() -> None:
    h = Harness()
    h.create_topic()
    wanted = [FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
    topics = [FetchRequest.FetchTopic(topic="t", partitions=wanted)]
    opened = h.call(FetchRequest(session_epoch=0, topics=topics), 12)
    more = {"session_id": opened.session_id, "max_wait_ms": 500, "min_bytes": 1}
    waiting = h.call(FetchRequest(session_epoch=1, isolation_level=READ_COMMITTED, **more), 12)
    before = h.partition().counters.fetches
    write(h, 1, 0, b"open")
    h.produce(batch(b"behind"))
    await settle()
    assert h.partition().counters.fetches == before
    end(h, 1)
    data = (await waiting).responses[0].partitions[0]
    assert values(data)[:2] == [b"open", b"behind"]


class Consumer:
    """A consumer of two partitions: what its session has reported, and its next offsets."""

    def __init__(self, h: Harness) -> None:
        self.h = h
        self.isolation = READ_COMMITTED
        self.offsets = [0, 0]
        self.told: dict[int, Any] = {}
        self.moved = [0, 1]
        self.session_id = self.epoch = 0

    def ask(self, session_id: int, epoch: int, indexes: list[int]) -> Any:
        wanted = [
            FetchRequest.FetchPartition(
                partition=index, fetch_offset=self.offsets[index], partition_max_bytes=1 << 20
            )
            for index in indexes
        ]
        answer = self.h.call(
            FetchRequest(
                session_id=session_id,
                session_epoch=epoch,
                isolation_level=self.isolation,
                topics=[FetchRequest.FetchTopic(topic="t", partitions=wanted)] if wanted else [],
            ),
            12,
        )
        return answer.session_id, [data for topic in answer.responses for data in topic.partitions]

    def step(self) -> None:
        self.session_id, answers = self.ask(self.session_id, self.epoch, self.moved)
        self.epoch += 1
        self.moved = []
        for data in answers:
            index = data.partition_index
            self.told[index] = data.replace(records=None)
            if data.records:
                *_, (last, _) = iter_batches(bytes(data.records))
                self.offsets[index] = last.last_offset + 1
                self.moved.append(index)

    def check(self) -> None:
        """Assert that a full fetch reports nothing else of the partitions that were omitted."""
        _, answers = self.ask(0, -1, [index for index in range(2) if index not in self.moved])
        for data in answers:
            assert not data.records
            assert self.told[data.partition_index] == data.replace(records=None)


@pytest.mark.parametrize("seed", range(15))
async def test_incremental_fetches_equal_full_fetches_with_transactions(seed: int) -> None:
    """Moves of the high watermark behind an open transaction are news, too."""
    rng = random.Random(seed)
    h = Harness()
    h.create_topic(partitions=2)
    client = Consumer(h)
    sequences = {(index, producer): 0 for index in range(2) for producer in range(1, 4)}
    for _ in range(120):
        index, producer = rng.randrange(2), rng.randrange(1, 4)
        action = rng.choice(["plain", "write", "write", "end", "isolation", "nothing"])
        if action == "plain":
            h.produce(batch(b"p"), index=index)
        elif action == "write":
            write(h, producer, sequences[(index, producer)], index=index)
            sequences[(index, producer)] += 1
        elif action == "end":
            end(h, producer, commit=rng.random() < 0.5, index=index)
        elif action == "isolation" and rng.random() < 0.4:
            client.isolation = 1 - client.isolation
        client.step()
        client.check()
