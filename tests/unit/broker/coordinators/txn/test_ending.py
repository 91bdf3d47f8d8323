"""EndTxn in every state, for every identity and both protocols; aborts by the coordinator."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from broker.coordinators.txn.ending import completed, decide_abort, decide_end
from broker.coordinators.txn.outcome import (
    Changed,
    Outcome,
    ProducerIdNeeded,
    Refused,
    Unchanged,
    fenced_code,
)
from broker.coordinators.txn.states import InvalidTransition, TxnState
from broker.coordinators.txn.transaction import Transaction
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.txn.values import NEW, NOW_MS, START_MS, P, transaction

MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
EMPTY, ONGOING = TxnState.EMPTY, TxnState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
COMMIT, ABORT = True, False
EPOCH = 7


def end(
    txn: Transaction | None,
    *,
    commit: bool,
    version: int,
    producer_id: int = P,
    epoch: int = EPOCH,
    in_flight: bool = False,
    new: int | None = None,
) -> Outcome:
    return decide_end(
        txn,
        producer_id,
        epoch,
        commit=commit,
        version=version,
        in_flight=in_flight,
        new_producer_id=new,
        now_ms=NOW_MS,
    )


def brief(outcome: Outcome) -> Any:
    """Return the error code, "same", or the state that the outcome leads to."""
    if isinstance(outcome, Refused):
        return outcome.code
    return outcome.after.state if isinstance(outcome, Changed) else "same"


CLASSIC: dict[tuple[TxnState, bool], Any] = {
    (EMPTY, COMMIT): INVALID,
    (EMPTY, ABORT): INVALID,
    (ONGOING, COMMIT): PREPARE_COMMIT,
    (ONGOING, ABORT): PREPARE_ABORT,
    (COMPLETE_COMMIT, COMMIT): "same",
    (COMPLETE_COMMIT, ABORT): INVALID,
    (COMPLETE_ABORT, COMMIT): INVALID,
    (COMPLETE_ABORT, ABORT): "same",
    **{(state, commit): CONCURRENT for state in (PREPARE_COMMIT, PREPARE_ABORT)
       for commit in (COMMIT, ABORT)},
}  # fmt: skip
PRESENT: dict[tuple[TxnState, bool], Any] = {
    (EMPTY, COMMIT): INVALID,
    (EMPTY, ABORT): PREPARE_ABORT,
    (ONGOING, COMMIT): PREPARE_COMMIT,
    (ONGOING, ABORT): PREPARE_ABORT,
    (COMPLETE_COMMIT, COMMIT): INVALID,
    (COMPLETE_COMMIT, ABORT): PREPARE_ABORT,
    (COMPLETE_ABORT, COMMIT): INVALID,
    (COMPLETE_ABORT, ABORT): PREPARE_ABORT,
}
REPEATED: dict[tuple[TxnState, bool], Any] = {
    (COMPLETE_COMMIT, COMMIT): "same",
    (COMPLETE_COMMIT, ABORT): INVALID,
    (COMPLETE_ABORT, COMMIT): FENCED,
    (COMPLETE_ABORT, ABORT): "same",
}


@pytest.mark.parametrize(("state", "commit"), list(product(STATES, (COMMIT, ABORT))))
@pytest.mark.parametrize("version", [0, 4])
def test_end_before_version_5_in_each_state(state: TxnState, commit: bool, version: int) -> None:
    outcome = end(transaction(state), commit=commit, version=version)
    assert brief(outcome) == CLASSIC[state, commit]
    if isinstance(outcome, Changed):
        assert (outcome.after.epoch, outcome.after.client_version) == (EPOCH, 0)
    for other in (EPOCH - 1, EPOCH + 1):
        assert end(transaction(state), commit=commit, version=version, epoch=other) == (FENCED,)


@pytest.mark.parametrize(
    ("state", "commit", "epoch"),
    list(product(STATES, (COMMIT, ABORT), (EPOCH - 2, EPOCH - 1, EPOCH, EPOCH + 1))),
)
def test_end_5_in_each_state_for_each_epoch(state: TxnState, commit: bool, epoch: int) -> None:
    """T7: a delayed or repeated EndTxn changes nothing but its own transaction."""
    outcome = end(transaction(state), commit=commit, version=5, epoch=epoch)
    if state in (PREPARE_COMMIT, PREPARE_ABORT):
        expected: Any = CONCURRENT
    elif epoch == EPOCH:
        expected = PRESENT[state, commit]
    else:
        expected = REPEATED.get((state, commit), FENCED) if epoch == EPOCH - 1 else FENCED
    assert brief(outcome) == expected
    if isinstance(outcome, Changed):
        assert outcome.after[:2] == outcome[1:3] == (P, EPOCH + 1)
        assert (outcome.after.last_epoch, outcome.after.client_version) == (EPOCH, 2)
    elif isinstance(outcome, Unchanged):
        assert outcome == (P, EPOCH)


@pytest.mark.parametrize(("version", "commit"), list(product((4, 5), (COMMIT, ABORT))))
def test_end_of_an_unknown_producer_is_refused(version: int, commit: bool) -> None:
    assert end(None, commit=commit, version=version) == (MAPPING,)
    assert end(transaction(), commit=commit, version=version, producer_id=P + 1) == (MAPPING,)


def test_end_waits_for_the_record_in_flight() -> None:
    for version, commit, state in product((4, 5), (COMMIT, ABORT), STATES):
        assert end(transaction(state), commit=commit, version=version, in_flight=True) == (
            CONCURRENT,
        )


def test_end_5_with_the_epoch_of_the_pending_transition_waits_for_it() -> None:
    """KAFKA-18464, KAFKA-18660: the producer has its new epoch or id before the markers are
    written, and must not be fenced. Before version 5 the epoch check is first."""
    txn = transaction(PREPARE_COMMIT, epoch=EPOCH + 1)
    for producer_id, epoch in ((P, EPOCH + 1), (P, EPOCH), (NEW, 0)):
        assert end(txn, commit=ABORT, version=5, producer_id=producer_id, epoch=epoch) == (
            CONCURRENT,
        )
    assert end(txn, commit=ABORT, version=4, epoch=EPOCH) == (FENCED,)


def test_end_5_without_partitions_starts_at_the_time_of_the_abort() -> None:
    """KAFKA-18401, KAFKA-18464: an empty transaction ends as any other, and raises the epoch."""
    for state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT):
        outcome = end(transaction(state), commit=ABORT, version=5)
        assert isinstance(outcome, Changed)
        assert (outcome.after.start_ms, outcome.after.partitions) == (NOW_MS, frozenset())
    outcome = end(transaction(), commit=ABORT, version=5)
    assert isinstance(outcome, Changed) and outcome.after.start_ms == START_MS


def test_completed_transaction_has_no_partitions() -> None:
    for state, after in ((PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)):
        done = completed(transaction(state), NOW_MS)
        assert (done.state, done.partitions, done.epoch) == (after, frozenset(), EPOCH)
        assert (done.start_ms, done.update_ms) == (START_MS, NOW_MS)
    with pytest.raises(InvalidTransition):
        completed(transaction(), NOW_MS)


@pytest.mark.parametrize(("commit", "state"), [(COMMIT, ONGOING), (ABORT, ONGOING), (ABORT, EMPTY)])
def test_end_5_of_the_last_epoch_takes_a_new_producer_id(commit: bool, state: TxnState) -> None:
    """KAFKA-18660, KAFKA-20090: the markers have the reserved epoch; the client gets the new id."""
    txn = transaction(state, epoch=32_766)
    assert end(txn, commit=commit, version=5, epoch=32_766) == ProducerIdNeeded()
    outcome = end(txn, commit=commit, version=5, epoch=32_766, new=NEW)
    assert isinstance(outcome, Changed)
    assert outcome[1:] == (NEW, 0, ErrorCode.NONE)
    prepared = outcome.after
    assert (prepared.producer_id, prepared.epoch, prepared.next_producer_id) == (P, 32_767, NEW)
    done = completed(prepared, NOW_MS)
    assert (done.producer_id, done.epoch, done.previous_producer_id) == (NEW, 0, P)
    assert (done.next_producer_id, done.last_epoch) == (-1, 32_766)
    repeat = end(done, commit=commit, version=5, epoch=32_766)
    assert repeat == Unchanged(NEW, 0)
    assert end(done, commit=commit, version=5, epoch=32_765) == (MAPPING,)
    again = end(done, commit=not commit, version=5, epoch=32_766)
    assert again == (INVALID if commit else FENCED,)


def test_end_before_version_5_keeps_the_last_epoch() -> None:
    outcome = end(transaction(epoch=32_766), commit=COMMIT, version=4, epoch=32_766)
    assert isinstance(outcome, Changed)
    assert (outcome.after.epoch, outcome.after.next_producer_id) == (32_766, -1)


def test_abort_by_the_coordinator_below_level_2_fences_the_epoch() -> None:
    for level in (0, 1):
        outcome = decide_abort(transaction(last_epoch=6, client_version=2), level, None, NOW_MS)
        assert isinstance(outcome, Changed)
        after = outcome.after
        assert (after.state, after.epoch, after.last_epoch) == (PREPARE_ABORT, EPOCH + 1, -1)
        assert after.client_version == 0


def test_abort_by_the_coordinator_at_level_2_raises_the_epoch_once() -> None:
    """KAFKA-19367: fencing and the end of the transaction are one change."""
    outcome = decide_abort(transaction(), 2, None, NOW_MS)
    assert isinstance(outcome, Changed)
    after = outcome.after
    assert (after.state, after.epoch, after.last_epoch) == (PREPARE_ABORT, EPOCH + 1, EPOCH)
    assert (after.client_version, after.start_ms) == (2, START_MS)


def test_repeated_abort_by_the_coordinator_leads_to_the_same_epoch() -> None:
    """KAFKA-9666: a refused append leaves the state as it was."""
    for level in (0, 2):
        txn = transaction()
        assert decide_abort(txn, level, None, NOW_MS) == decide_abort(txn, level, None, NOW_MS)


@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_abort_by_the_coordinator_at_the_last_epochs(epoch: int) -> None:
    """KAFKA-20090: the epoch never passes 32767, and the producer id is replaced at level 2."""
    txn = transaction(epoch=epoch)
    below = decide_abort(txn, 0, None, NOW_MS)
    assert isinstance(below, Changed) and below.after.epoch == 32_767
    assert decide_abort(txn, 2, None, NOW_MS) == ProducerIdNeeded()
    outcome = decide_abort(txn, 2, NEW, NOW_MS)
    assert isinstance(outcome, Changed) and outcome.after.epoch == 32_767
    done = completed(outcome.after, NOW_MS)
    assert (done.producer_id, done.epoch) == (NEW, 0)


def test_abort_by_the_coordinator_needs_an_open_transaction() -> None:
    for state, level in product(set(STATES) - {ONGOING}, (0, 2)):
        with pytest.raises(InvalidTransition):
            decide_abort(transaction(state), level, NEW, NOW_MS)


def test_commit_after_the_coordinators_abort_is_fenced() -> None:
    """KAFKA-20785: Kafka 4.4 returns INVALID_TXN_STATE, which ends Kafka Streams."""
    for epoch in (EPOCH, 32_766):
        aborted = decide_abort(transaction(epoch=epoch), 2, NEW, NOW_MS)
        assert isinstance(aborted, Changed)
        done = completed(aborted.after, NOW_MS)
        assert end(done, commit=COMMIT, version=5, epoch=epoch) == (FENCED,)
        assert end(done, commit=ABORT, version=5, epoch=epoch) == (done.producer_id, done.epoch)


def test_fenced_code_depends_on_the_version_of_the_api() -> None:
    """KIP-588: older clients do not know PRODUCER_FENCED."""
    assert fenced_code(FENCED, 1, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert fenced_code(FENCED, 2, 2) is FENCED
    assert fenced_code(MAPPING, 1, 2) is MAPPING
