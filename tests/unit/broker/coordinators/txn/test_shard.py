"""A shard of transactions in the runtime: transitions, markers, failover, refused appends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.coordinators.log_entries import LogRecord
from broker.coordinators.txn.init_producer import InitProducer
from broker.coordinators.txn.shard import COMPLETION_BACKOFF_MS
from broker.coordinators.txn.states import TxnState
from protocol.errors import ApiError, ErrorCode, ProtocolError
from testkit.memory.broker import settle
from testkit.memory.group_coordinator import HOME
from tests.unit.broker.coordinators.txn.values import A0, A1, B0
from tests.unit.broker.coordinators.txn.world import (
    COMMIT_MS,
    TID,
    TIMEOUT_MS,
    TxnWorld,
    answer,
    code,
    identity,
)

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
LOST = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


@pytest.fixture
async def world() -> AsyncIterator[TxnWorld]:
    world = await TxnWorld().start()
    yield world
    await world.stop()


@pytest.fixture
async def below() -> AsyncIterator[TxnWorld]:
    """A coordinator at transaction.version 0."""
    world = await TxnWorld(level=0).start()
    yield world
    await world.stop()


@pytest.mark.parametrize("commit", [True, False])
async def test_transaction_is_complete_when_all_partitions_have_the_marker(
    world: TxnWorld, commit: bool
) -> None:
    """T8: the markers follow the Prepare record, and the Complete record follows the markers."""
    producer = identity(world.init())
    assert identity(world.add(producer, A0, B0)) == producer
    after = identity(world.end(producer, commit=commit))
    assert after == (producer[0], producer[1] + 1)
    (due,) = world.due
    assert (due.producer_id, due.producer_epoch) == after
    assert (due.committed, due.coordinator_epoch, due.client_version) == (commit, 1, 2)
    assert due.partitions == {A0, B0}
    assert code(world.add(after, A1)) is code(world.init()) is CONCURRENT
    world.written(due, A0)
    assert world.txn.state is (TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT)
    world.written(due, B0)
    assert world.txn.state is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT)
    assert identity(world.end(producer, commit=commit)) == after
    assert identity(world.add(after, A1)) == after
    assert len(world.shard.markers) == 0


async def test_empty_transaction_is_complete_without_markers(world: TxnWorld) -> None:
    """KAFKA-18464, KAFKA-18401: the epoch rises all the same."""
    producer = identity(world.init())
    after = identity(world.end(producer, commit=False))
    assert (world.txn.state, world.txn.epoch) == (TxnState.COMPLETE_ABORT, after[1])
    assert world.due == []
    assert len(world.shard.markers) == 0


async def test_transition_is_visible_when_it_is_committed(world: TxnWorld) -> None:
    producer = identity(world.init())
    world.log.hold = True
    added = world.add(producer, A0)
    await settle()
    assert not added.done()
    assert code(world.add(producer, A1)) is CONCURRENT
    assert world.shard.verify(TID, producer, [A0]) == {A0: ErrorCode.TRANSACTION_ABORTABLE}
    world.commit_records()
    assert identity(await added) == producer
    assert world.shard.verify(TID, producer, [A0, A1]) == {
        A0: ErrorCode.NONE,
        A1: ErrorCode.TRANSACTION_ABORTABLE,
    }


async def test_markers_are_requested_when_the_prepare_record_is_committed(world: TxnWorld) -> None:
    """T8: a marker of a transaction whose outcome may be lost would be wrong."""
    producer = identity(world.init())
    world.add(producer, A0)
    world.log.hold = True
    ended = world.end(producer)
    await settle()
    assert world.due == []
    world.wake(COMMIT_MS)
    assert code(await ended) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.due == []
    world.commit_records()
    await settle()
    assert [due.partitions for due in world.due] == [{A0}]


async def test_refused_append_leaves_the_transaction_as_it_was(world: TxnWorld) -> None:
    """A record above max.message.bytes fails its request, not the coordinator."""
    producer = identity(world.init())
    world.add(producer, A0)
    world.log.refuse = ErrorCode.MESSAGE_TOO_LARGE
    assert code(world.add(producer, A1)) is ErrorCode.UNKNOWN_SERVER_ERROR
    world.log.refuse = None
    assert identity(world.add(producer, A0)) == producer
    assert world.txn.partitions == {A0}


async def test_refused_completion_is_appended_again(world: TxnWorld) -> None:
    """T8: no transaction stays in a Prepare state."""
    producer = identity(world.init())
    world.add(producer, A0)
    world.end(producer)
    world.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    world.written(world.due[0])
    for _ in range(3):
        world.wake(COMPLETION_BACKOFF_MS)
        assert world.txn.state is TxnState.PREPARE_COMMIT
    world.log.refuse = None
    world.wake(COMPLETION_BACKOFF_MS - 1)
    assert world.txn.state is TxnState.PREPARE_COMMIT
    world.wake(1)
    assert world.txn.state is TxnState.COMPLETE_COMMIT


async def test_markers_reported_twice_append_one_completion(world: TxnWorld) -> None:
    producer = identity(world.init())
    world.add(producer, A0)
    world.end(producer)
    world.log.hold = True
    for _ in range(2):
        world.written(world.due[0])
    assert len(world.log.pending) == 1


async def test_lost_append_loads_the_transactions_again(world: TxnWorld) -> None:
    producer = identity(world.init())
    world.log.hold = True
    added = world.add(producer, A0)
    world.log.hold = False
    world.log.pending[0].set_exception(LOST)
    assert code(await added) is ErrorCode.NOT_COORDINATOR
    await settle()
    assert world.txn.state is TxnState.ONGOING


@pytest.mark.parametrize("commit", [True, False])
async def test_next_coordinator_resumes_a_prepared_transaction(
    world: TxnWorld, commit: bool
) -> None:
    """T8: all markers are written again, in the epoch of the new coordinator."""
    producer = identity(world.init())
    world.add(producer, A0, B0)
    world.end(producer, commit=commit)
    (old,) = world.due
    world.written(old, A0)
    await world.fail_over()
    (due,) = world.due
    assert (due.coordinator_epoch, due.partitions) == (3, {A0, B0})
    assert (due.committed, due.producer_epoch) == (commit, old.producer_epoch)
    world.written(due)
    assert world.txn.state is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT)


async def test_next_coordinator_completes_an_empty_transaction(world: TxnWorld) -> None:
    producer = identity(world.init())
    world.log.hold = True
    ended = world.end(producer, commit=False)
    world.log.hold = False
    await world.fail_over()
    assert code(await ended) is ErrorCode.NOT_COORDINATOR
    assert (world.txn.state, world.due) == (TxnState.COMPLETE_ABORT, [])


async def test_markers_carry_the_raised_leader_epoch(world: TxnWorld) -> None:
    """KAFKA-16352: a result for the epoch before does not complete the transaction."""
    producer = identity(world.init())
    world.add(producer, A0, B0)
    world.end(producer)
    world.runtime.elected(HOME, 9)
    world.wake()
    old, due = world.due
    assert (old.coordinator_epoch, due.coordinator_epoch) == (1, 9)
    world.written(old)
    assert world.txn.state is TxnState.PREPARE_COMMIT
    world.written(due, A0)
    world.written(due, B0)
    assert world.txn.state is TxnState.COMPLETE_COMMIT


async def test_result_of_an_earlier_transaction_completes_no_later_one(world: TxnWorld) -> None:
    """KAFKA-16352: each request for markers belongs to one transition."""
    producer = identity(world.init())
    for _ in range(2):
        world.add(producer, A0)
        producer = identity(world.end(producer))
        if len(world.due) == 1:
            world.written(world.due[0])
    world.written(world.due[0])
    assert world.txn.state is TxnState.PREPARE_COMMIT
    world.written(world.due[1])
    assert world.txn.state is TxnState.COMPLETE_COMMIT


async def test_epoch_raised_while_the_completion_is_in_flight_requests_no_markers(
    world: TxnWorld,
) -> None:
    producer = identity(world.init())
    world.add(producer, A0)
    world.end(producer)
    world.log.hold = True
    world.written(world.due[0])
    world.runtime.elected(HOME, 9)
    world.wake()
    assert len(world.due) == 1
    world.commit_records()
    await settle()
    assert world.txn.state is TxnState.COMPLETE_COMMIT


async def test_completion_refused_before_the_epoch_rose_waits_for_the_new_markers(
    world: TxnWorld,
) -> None:
    """KAFKA-16352: the backoff of the old epoch's completion does not complete the new one's."""
    producer = identity(world.init())
    world.add(producer, A0)
    world.end(producer)
    world.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    world.written(world.due[0])
    world.log.refuse = None
    world.runtime.elected(HOME, 9)
    world.wake()
    world.wake(COMPLETION_BACKOFF_MS)
    assert world.txn.state is TxnState.PREPARE_COMMIT
    world.written(world.due[1])
    assert world.txn.state is TxnState.COMPLETE_COMMIT


@pytest.mark.parametrize("level", [0, 2])
async def test_new_producer_aborts_the_open_transaction(level: int) -> None:
    """T3: the client tries again until the abort is complete; the old producer is fenced."""
    world = await TxnWorld(level).start()
    old = identity(world.init())
    world.add(old, A0)
    assert code(world.init()) is CONCURRENT
    assert code(world.init()) is CONCURRENT
    (fenced,) = world.fenced
    assert (fenced.transactional_id, fenced.producer_id, fenced.epoch) == (TID, old[0], old[1] + 1)
    (due,) = world.due
    assert not due.committed
    world.written(due)
    assert identity(world.init()) == (old[0], old[1] + 2)
    for reply in (world.add(old, A0), world.end(old), world.init(InitProducer(1, *old))):
        assert code(reply) is ErrorCode.PRODUCER_FENCED
    await world.stop()


@pytest.mark.parametrize("level", [0, 2])
async def test_transaction_that_times_out_is_aborted_once(level: int) -> None:
    """T6, KAFKA-9666: refused appends raise the epoch no further."""
    world = await TxnWorld(level).start()
    producer = identity(world.init())
    world.add(producer, A0)
    world.clock.advance(TIMEOUT_MS)
    await world.time_out()
    assert world.txn.state is TxnState.ONGOING
    world.clock.advance(1)
    world.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        await world.time_out()
    world.log.refuse = None
    await world.time_out()
    await world.time_out()
    (due,) = world.due
    assert (due.producer_epoch, due.committed) == (producer[1] + 1, False)
    assert world.fenced[-1].reason == "the transaction timed out"
    world.written(due)
    assert world.txn.state is TxnState.COMPLETE_ABORT
    await world.stop()


async def test_loaded_transaction_times_out(world: TxnWorld) -> None:
    producer = identity(world.init())
    world.add(producer, A0)
    await world.fail_over()
    assert world.due == []
    world.clock.advance(TIMEOUT_MS + 1)
    await world.time_out()
    assert world.txn.state is TxnState.PREPARE_ABORT


async def test_unused_transactional_ids_expire_in_slices(world: TxnWorld) -> None:
    """`transactional.id.expiration.ms`: one with an open transaction stays."""
    producer = identity(world.init())
    await world.walk(lambda shard, now: shard.decide_expired(now, 1_000))
    assert TID in world.shard.appended
    world.clock.advance(1_000)
    world.add(producer, A0)
    await world.walk(lambda shard, now: shard.decide_expired(now, 0))
    assert world.txn.state is TxnState.ONGOING
    world.end(producer)
    world.written(world.due[0])
    await world.walk(lambda shard, now: shard.decide_expired(now, 0))
    assert len(world.shard.committed_state) == 0
    assert world.log.records[HOME][-1][1] is None
    assert code(world.end(producer)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert identity(world.init())[1] == 0


async def test_request_that_needs_a_producer_id_is_refused_without_one(world: TxnWorld) -> None:
    """The broker has no block of ids yet: the error is retriable."""
    ids, world.ids = world.ids, lambda: None
    assert code(world.init()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.ids = ids
    producer = identity(world.init())
    world.ids = lambda: None
    assert identity(world.init()) == (producer[0], producer[1] + 1)


async def test_transaction_in_a_lowered_level_ends_as_it_began(world: TxnWorld) -> None:
    """KAFKA-18227: the request's version determines the end, the level the coordinator's aborts."""
    producer = identity(world.init())
    world.add(producer, A0)
    world.level = 0
    ended = world.ask(
        lambda shard, now: shard.decide_end(
            TID,
            producer,
            commit=True,
            version=5,
            respond=answer,
            now=now,
        )
    )
    assert identity(ended) == (producer[0], producer[1] + 1)
    await world.fail_over()
    (due,) = world.due
    assert (due.client_version, due.producer_epoch) == (2, producer[1] + 1)
    world.written(due)
    assert world.txn.epoch == producer[1] + 1


async def test_unreadable_record_ends_the_loading_of_its_partition(below: TxnWorld) -> None:
    """Only that partition's coordinator refuses requests; the error names the offset."""
    below.init()
    below.log.records[HOME].append((b"\x00\x00\x00\x01t", b"\x00\x00broken"))
    await below.fail_over()
    assert below.runtime.find(TID) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ProtocolError, match="transaction record at offset 8: "):
        below.new_shard(HOME, 1).replay(LogRecord(8, *below.log.records[HOME][-1]))


async def test_record_of_a_later_version_is_skipped(below: TxnWorld) -> None:
    producer = identity(below.init())
    below.log.records[HOME] += [(b"\x00\x07later", b""), (b"\x00\x00\x00\x01t", b"\x00\x05later")]
    await below.fail_over()
    assert [(offset, one.part) for offset, one in below.shard.skipped] == [(1, "key"), (2, "value")]
    assert identity(below.add(producer, A0)) == producer
