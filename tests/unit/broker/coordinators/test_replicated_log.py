"""A coordinator's log over the replicas of its topic."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinators.log_entries import (
    EndMarker,
    EndOfTransaction,
    LogRecord,
    PlainBatch,
    TransactionalBatch,
)
from broker.coordinators.replicated_log import ReplicatedCoordinatorLog
from broker.replication.partition.followers import follower_fetched
from protocol.batch.control import build_end_txn_marker
from protocol.batch.header import CODEC_MASK, CorruptBatch, iter_checked
from protocol.batch.records import NO_PRODUCER, Producer, Record, build_batch, records_payload
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode
from testkit.memory.broker import NODE, OTHER, Harness, settle
from testkit.memory.replicas import Cluster


def coordinator_log(h: Harness) -> ReplicatedCoordinatorLog:
    return ReplicatedCoordinatorLog(
        "t",
        replicas=h.replicas,
        metadata=h.metadata,
        creator=h.creator,
    )


async def test_coordinator_records_are_committed_and_read_back() -> None:
    h = Harness()
    log = coordinator_log(h)
    assert log.partition_count() is None
    h.create_topic(partitions=2, configs={"cleanup.policy": "compact"})
    assert (log.partition_count(), log.leader_epoch(0), log.leader_epoch(9)) == (2, 0, None)
    first = log.append(0, PlainBatch([(b"a", b"1"), (b"b", None)]), 5)
    second = log.append(0, PlainBatch([(b"c", b"3")]), 6)
    assert first.committed.done()
    assert second.committed.done()
    assert (first.base_offset, second.base_offset) == (0, 2)
    assert [row[:3] async for row in log.read_all(0)] == [
        (0, b"a", b"1"),
        (1, b"b", None),
        (2, b"c", b"3"),
    ]
    assert [row async for row in log.read_all(1)] == []


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_coordinator_log_returns_producers_and_markers(codec: Codec) -> None:
    """T9: a batch carries the producer of its transaction, and a marker carries the outcome."""
    h = Harness()
    h.create_topic(configs={"cleanup.policy": "compact"})
    log = coordinator_log(h)
    unpacked = []
    run_in_worker = h.files.run

    async def run(function: Any, *args: Any) -> Any:
        unpacked.append(function)
        return await run_in_worker(function, *args)

    h.files.run = run  # type: ignore[method-assign]

    def append(data: bytes) -> None:
        h.replicas.append_own(h.partition(), data, now_ms=5)

    def records(*keys: bytes, producer: Producer = NO_PRODUCER) -> bytes:
        listed = [Record(timestamp=5, key=key, value=b"v") for key in keys]
        return build_batch(listed, producer=producer, compression=codec)

    append(records(b"a"))
    append(records(b"b", b"c", producer=Producer(7, 1, -1, transactional=True)))
    append(records(b"d", producer=Producer(8, 1, 0, transactional=False)))
    for commit in (False, True):
        marker = build_end_txn_marker(7, 1, commit=commit, coordinator_epoch=3, timestamp_ms=5)
        append(marker)
    assert [row async for row in log.read_all(0)] == [
        LogRecord(0, b"a", b"v"),
        LogRecord(1, b"b", b"v", 7, 1),
        LogRecord(2, b"c", b"v", 7, 1),
        LogRecord(3, b"d", b"v"),
        EndOfTransaction(4, 7, 1, False, 3),
        EndOfTransaction(5, 7, 1, True, 3),
    ]
    assert unpacked == ([] if codec is Codec.NONE else [records_payload] * 3)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_coordinator_log_appends_a_transaction_and_its_end(codec: Codec) -> None:
    """T9: offsets of a transaction are read back with their producer; the marker closes it."""
    h = Harness()
    h.create_topic(configs={"cleanup.policy": "compact"})
    log = ReplicatedCoordinatorLog(
        "t", replicas=h.replicas, metadata=h.metadata, creator=h.creator, codec=codec
    )
    records = [(b"a", b"1"), (b"b", b"2")]
    sent = log.append(0, TransactionalBatch(7, 3, records), 5)
    producers = h.partition().log.producers
    assert producers.first_unstable_offset == 0
    ended = log.append(0, EndMarker(7, 4, committed=True, coordinator_epoch=9), 6)
    assert (sent.base_offset, ended.base_offset) == (0, 2)
    assert sent.committed.done() and ended.committed.done()
    state = producers.get(7)
    assert state is not None and state.txn_first_offset is None
    assert (state.epoch, state.coordinator_epoch) == (4, 9)
    file = h.partition().log.segments.active.log
    header, _ = next(iter_checked(file.pread(file.size(), 0)))
    assert header.attributes & CODEC_MASK == codec
    assert [row async for row in log.read_all(0)] == [
        LogRecord(0, b"a", b"1", 7, 3),
        LogRecord(1, b"b", b"2", 7, 3),
        EndOfTransaction(2, 7, 4, True, 9),
    ]


async def test_coordinator_log_refuses_an_older_epoch_of_the_producer() -> None:
    """T3: nothing of a fenced producer is appended."""
    h = Harness()
    h.create_topic()
    log = coordinator_log(h)
    log.append(0, EndMarker(7, 4, committed=False, coordinator_epoch=9), 5)
    for batch in (TransactionalBatch(7, 3, [(b"a", b"1")]), EndMarker(7, 3, True, 9)):
        with pytest.raises(ApiError) as caught:
            log.append(0, batch, 5)
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert h.partition().log.log_end_offset == 1


async def test_coordinator_appends_wait_for_the_isr_and_fail_with_leadership() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    log = coordinator_log(h)
    first = log.append(0, PlainBatch([(b"a", b"1")]), 5).committed
    second = log.append(0, PlainBatch([(b"b", b"1")]), 5).committed
    partition = h.partition()
    effects = follower_fetched(partition, OTHER, offset=1, log_start=0, broker_epoch=1, now_ms=0)
    h.replicas.carry_out(partition, effects)
    assert first.done()
    assert not second.done()
    h.change(leader=OTHER)
    with pytest.raises(ApiError) as caught:
        await second
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.leader_epoch(0) is None
    with pytest.raises(ApiError) as refused:
        log.append(0, PlainBatch([(b"a", b"1")]), 5)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_coordinator_goes_on_when_its_leader_gets_a_new_epoch() -> None:
    """G10: as in Kafka, a new epoch of the same leader loads nothing again.

    Pending appends are committed in the new epoch: the log has only this broker's own appends.
    """
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    log = coordinator_log(h)
    roles: list[tuple[str, int | None]] = []

    class Listener:
        def elected(self, partition: int, leader_epoch: int) -> None:
            roles.append(("elected", leader_epoch))

        def resigned(self, partition: int, leader_epoch: int | None) -> None:
            roles.append(("resigned", leader_epoch))

    log.add_listener(Listener())
    under_way = log.append(0, PlainBatch([(b"a", b"1")]), 5).committed
    h.change(leader=NODE, isr=[NODE, OTHER])
    epoch = h.partition().leader_epoch
    assert epoch > 0
    assert roles == [("elected", 0), ("elected", epoch)]
    assert not under_way.done()
    effects = follower_fetched(
        h.partition(), OTHER, offset=1, log_start=0, broker_epoch=1, now_ms=0
    )
    h.replicas.carry_out(h.partition(), effects)
    await under_way
    h.change(leader=OTHER)
    assert roles[2:] == [("resigned", h.partition().leader_epoch)]


async def test_coordinator_appends_that_are_refused() -> None:
    h = Harness()
    h.create_topic(configs={"max.message.bytes": "100"})
    log = coordinator_log(h)
    with pytest.raises(ApiError) as caught:
        log.append(0, PlainBatch([(b"a", b"x" * 200)]), 5)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_reading_for_a_coordinator_ends_with_its_leadership() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], isr=[NODE])
    log = coordinator_log(h)
    for _ in range(3):
        log.append(0, PlainBatch([(b"k", b"v" * 200_000)]), 5)
    rows = log.read_all(0)
    assert (await anext(rows))[0] == 0
    h.change(leader=OTHER)
    with pytest.raises(ApiError):
        async for _ in rows:
            pass


async def test_a_coordinator_does_not_believe_a_damaged_batch() -> None:
    """F20: only a reader finds a flipped bit in a closed segment below the recovery point."""
    h = Harness()
    h.create_topic(configs={"cleanup.policy": "compact"})
    log = coordinator_log(h)
    log.append(0, PlainBatch([(b"group", b"offset 7")]), 5)
    file = h.partition().log.segments.active.log
    whole = file.pread(file.size(), 0)
    file.pwrite(b"8", whole.index(b"7"))
    with pytest.raises(CorruptBatch, match="wrong CRC"):
        [row async for row in log.read_all(0)]


async def test_a_flush_holds_a_coordinators_commit_back() -> None:
    h = Harness()
    h.create_topic(configs={"flush.messages": "1"})
    log = coordinator_log(h)
    committed = log.append(0, PlainBatch([(b"a", b"1")]), 5).committed
    assert not committed.done()
    await committed
    assert h.partition().log.recovery_point == 1
    await settle()


async def test_a_coordinator_shows_nothing_that_is_not_committed() -> None:
    c = Cluster(2)
    c.create(1, 2)
    log = ReplicatedCoordinatorLog(
        "t", replicas=c[1].replicas, metadata=c[1].metadata, creator=c[1].creator
    )
    log.append(0, PlainBatch([(b"k", b"v")]), 5)
    rows = log.read_all(0)
    assert (await anext(rows))[1] == b"k"
    ended = c[1].supervisor.spawn("read on", anext(rows, None))  # type: ignore[arg-type]
    await settle()
    assert not ended.done()
    c.fetch(2, times=2)
    assert await ended is None
