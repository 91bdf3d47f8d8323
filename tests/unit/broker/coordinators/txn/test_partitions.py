"""AddPartitionsToTxn and its verification in every state."""

from __future__ import annotations

from itertools import product

import pytest

from broker.coordinators.txn.outcome import Changed, Refused, Unchanged
from broker.coordinators.txn.partitions import client_version, decide_add, decide_verify
from broker.coordinators.txn.states import IDLE, PREPARING, TxnState
from broker.coordinators.txn.transaction import Transaction
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.txn.values import A0, A1, B0, NOW_MS, START_MS, P, transaction

EPOCH = 7
IDENTITIES = [
    (P, EPOCH, None),
    (P, EPOCH - 1, ErrorCode.PRODUCER_FENCED),
    (P, EPOCH + 1, ErrorCode.PRODUCER_FENCED),
    (P + 1, EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
]


def add(
    txn: Transaction | None,
    *partitions: object,
    producer_id: int = P,
    epoch: int = EPOCH,
    in_flight: bool = False,
    version: int = 2,
) -> Refused | Unchanged | Changed:
    return decide_add(
        txn,
        producer_id,
        epoch,
        partitions,  # type: ignore[arg-type]
        client_version=version,
        in_flight=in_flight,
        now_ms=NOW_MS,
    )


@pytest.mark.parametrize(("producer_id", "epoch", "code"), IDENTITIES)
@pytest.mark.parametrize("state", [*sorted(IDLE, key=str), TxnState.ONGOING])
def test_add_checks_producer_id_and_epoch(
    state: TxnState, producer_id: int, epoch: int, code: ErrorCode | None
) -> None:
    outcome = add(transaction(state), A1, producer_id=producer_id, epoch=epoch)
    if code is not None:
        assert outcome == (code,)
    else:
        assert isinstance(outcome, Changed)
        after = outcome.after
        assert (after.state, after.client_version) == (TxnState.ONGOING, 2)
        is_open = state is TxnState.ONGOING
        assert after.start_ms == (START_MS if is_open else NOW_MS)
        assert after.partitions == ({A0, A1, B0} if is_open else {A1})
        assert (after.producer_id, after.epoch, after.update_ms) == (P, EPOCH, NOW_MS)


def test_add_without_a_transactional_id_is_refused() -> None:
    assert add(None, A0) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING,)


def test_add_of_partitions_that_are_there_appends_nothing() -> None:
    assert add(transaction(), A0, B0) == Unchanged(P, EPOCH)
    assert add(transaction()) == Unchanged(P, EPOCH)
    assert isinstance(add(transaction(), A0, A1), Changed)


@pytest.mark.parametrize(("producer_id", "epoch"), [(P, EPOCH), (P, EPOCH + 1), (P + 1, 0)])
def test_add_waits_for_the_pending_transition(producer_id: int, epoch: int) -> None:
    """KAFKA-18575, KAFKA-18654, KAFKA-18660: the next transaction starts while the last one
    completes. It waits, even with the identity that the completion leads to."""
    for state in PREPARING:
        assert add(transaction(state), A0, producer_id=producer_id, epoch=epoch) == (
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
    for state in TxnState:
        outcome = add(transaction(state), A0, producer_id=producer_id, epoch=epoch, in_flight=True)
        assert outcome == (ErrorCode.CONCURRENT_TRANSACTIONS,)


@pytest.mark.parametrize(("producer_id", "epoch", "code"), IDENTITIES)
@pytest.mark.parametrize("state", [*sorted(IDLE | PREPARING, key=str), TxnState.ONGOING])
def test_verify_returns_a_code_for_each_partition(
    state: TxnState, producer_id: int, epoch: int, code: ErrorCode | None
) -> None:
    """KIP-890: TRANSACTION_ABORTABLE for a partition that was never added."""
    codes = decide_verify(transaction(state), producer_id, epoch, [A0, A1])
    if code is None and state in PREPARING:
        code = ErrorCode.CONCURRENT_TRANSACTIONS
    if code is not None:
        assert codes == {A0: code, A1: code}
    else:
        present = ErrorCode.NONE if state is TxnState.ONGOING else ErrorCode.TRANSACTION_ABORTABLE
        assert codes == {A0: present, A1: ErrorCode.TRANSACTION_ABORTABLE}


def test_verify_without_a_transactional_id_is_refused() -> None:
    assert decide_verify(None, P, EPOCH, [A0]) == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize(("version", "expected"), list(product((0, 3), (0,))) + [(4, 2), (5, 2)])
def test_client_version_follows_from_the_request(version: int, expected: int) -> None:
    """Brokers send version 4 and above, on behalf of clients of transaction version 2."""
    assert client_version(version) == expected
