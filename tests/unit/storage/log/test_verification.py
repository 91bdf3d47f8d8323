"""Guards of transactions: appends that may begin one (KIP-890, T6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.batch.control import build_end_txn_marker
from protocol.batch.header import parse_header
from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from storage.log.log import Log
from storage.log.producers import Origin
from storage.log.verification import NO_VERIFICATION, TransactionGuard
from testkit.memory.logs import T0, append, batch, make_log

PID = 7
LEADER_EPOCH = 3


def send(
    log: Log,
    sequence: int,
    guard: TransactionGuard | None = None,
    *,
    epoch: int = 0,
    txn: bool = True,
    leader_epoch: int = LEADER_EPOCH,
    origin: Origin = Origin.CLIENT,
) -> int:
    """Append one batch with its header, as the broker does."""
    data = batch(producer=Producer(PID, epoch, sequence, transactional=txn))
    info = log.append_as_leader(
        data, leader_epoch, T0, origin, header=parse_header(data), guard=guard
    )
    return -1 if info.duplicate else info.first_offset


def refused(log: Log, *args: object, **options: object) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(ApiError) as error:
        send(log, *args, **options)  # type: ignore[arg-type]
    assert log.log_end_offset == end
    return error.value.code


def end_txn(log: Log, epoch: int = 0) -> None:
    data = build_end_txn_marker(PID, epoch, commit=True, coordinator_epoch=1, timestamp_ms=T0)
    append(log, data, LEADER_EPOCH, Origin.COORDINATOR)


def guard_of(log: Log, epoch: int = 0, leader_epoch: int = LEADER_EPOCH) -> TransactionGuard:
    return log.producers.guards.begin(PID, epoch, leader_epoch)


def test_first_batch_of_a_transaction_without_guard_is_refused() -> None:
    log = make_log()
    assert refused(log, 0) == ErrorCode.INVALID_TXN_STATE
    assert refused(log, 0, origin=Origin.COORDINATOR) == ErrorCode.INVALID_TXN_STATE
    assert send(log, 0, guard_of(log)) == 0
    assert send(log, 1) == 1


def test_batch_that_continues_the_sequence_after_a_marker_needs_a_guard() -> None:
    """The fast path must not let it through."""
    log = make_log()
    send(log, 0, guard_of(log))
    end_txn(log)
    assert refused(log, 1) == ErrorCode.INVALID_TXN_STATE
    assert send(log, 1, guard_of(log)) == 2


def test_batches_outside_of_transactions_need_no_guard() -> None:
    log = make_log()
    assert [send(log, at, txn=False) for at in range(3)] == [0, 1, 2]


def test_append_without_verification_begins_a_transaction() -> None:
    log = make_log()
    assert send(log, 0, NO_VERIFICATION) == 0
    end_txn(log)
    assert send(log, 1, NO_VERIFICATION) == 2


def test_open_transaction_of_an_older_epoch_is_not_the_current_one() -> None:
    """The first batch of a newer epoch needs a guard although no marker has ended the older
    transaction. The last stable offset stays at that one."""
    log = make_log()
    send(log, 0, guard_of(log))
    assert refused(log, 0, epoch=1) == ErrorCode.INVALID_TXN_STATE
    assert send(log, 0, guard_of(log, 1), epoch=1) == 1
    assert send(log, 1, epoch=1) == 2
    log.update_high_watermark(3)
    assert log.last_stable_offset == 0
    end_txn(log, 1)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4
    assert refused(log, 2, epoch=1) == ErrorCode.INVALID_TXN_STATE


def test_epoch_raised_by_a_plain_batch_does_not_take_over_the_open_transaction() -> None:
    """A follower appends it as it is; the first offset of the transaction outlives the epoch."""
    log = make_log()
    send(log, 0, guard_of(log))
    append(log, batch(producer=Producer(PID, 1, 0)), LEADER_EPOCH, Origin.RAFT_LEADER)
    assert refused(log, 1, epoch=1) == ErrorCode.INVALID_TXN_STATE
    assert send(log, 1, guard_of(log, 1), epoch=1) == 2


def test_open_transaction_continues_without_guard_after_a_restart() -> None:
    log = make_log()
    send(log, 0, guard_of(log, 5), epoch=5)
    log.close()
    again = make_log(log.files, clean=True)
    assert send(again, 1, epoch=5) == 1


def remove_by_marker(log: Log) -> None:
    end_txn(log)


def remove_by_newer_epoch(log: Log) -> None:
    append(log, batch(producer=Producer(PID, 1, 0)), LEADER_EPOCH)


def remove_by_expiry(log: Log) -> None:
    sum(log.producers.expiry_steps(T0 + (1 << 40)))


def remove_by_truncation(log: Log) -> None:
    log.truncate_to(0)


def remove_by_use(log: Log) -> None:
    send(log, 1, guard_of(log))
    end_txn(log)


@pytest.mark.parametrize(
    "remove",
    [
        remove_by_marker, remove_by_newer_epoch, remove_by_expiry, remove_by_truncation,
        remove_by_use,
    ],
)  # fmt: skip
def test_guard_ends_with_each_event_that_ends_its_transaction(
    remove: Callable[[Log], None],
) -> None:
    log = make_log()
    send(log, 0, txn=False)
    guard = guard_of(log)
    remove(log)
    assert len(log.producers.guards) == 0
    state = log.producers.get(PID)
    epoch, sequence = (0, 0) if state is None else (state.epoch, state.last_sequence + 1)
    assert refused(log, sequence, guard, epoch=epoch) == ErrorCode.INVALID_TXN_STATE


def test_guard_of_another_producer_epoch_or_leader_epoch_verifies_nothing() -> None:
    """A leader that resigned and leads again has not sent the request in this epoch."""
    log = make_log()
    assert refused(log, 0, guard_of(log), epoch=1) == ErrorCode.INVALID_TXN_STATE
    older = guard_of(log)
    assert guard_of(log) is older
    assert refused(log, 0, older, leader_epoch=4) == ErrorCode.INVALID_TXN_STATE
    newer = guard_of(log, leader_epoch=4)
    assert refused(log, 0, older, leader_epoch=4) == ErrorCode.INVALID_TXN_STATE
    assert send(log, 0, newer, leader_epoch=4) == 0


def test_checks_run_in_the_order_duplicate_epoch_guard_sequence() -> None:
    """KAFKA-19690: a fenced producer must learn that, not that its transaction is missing."""
    log = make_log()
    send(log, 0, guard_of(log, 2), epoch=2)
    end_txn(log, 2)
    assert send(log, 0, epoch=2) == -1
    assert refused(log, 9, epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 9, epoch=2) == ErrorCode.INVALID_TXN_STATE
    guard = guard_of(log, 2)
    assert refused(log, 9, guard, epoch=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, guard, epoch=2) == 2
