"""Timeouts of transactions, and the expiration of transactional ids."""

from __future__ import annotations

import pytest

from broker.coordinators.txn.states import IDLE, TxnState
from broker.coordinators.txn.time_limits import has_expired, has_timed_out, timeout_at_ms
from tests.unit.broker.coordinators.txn.values import START_MS, transaction

TIMEOUT_MS = 30_000


@pytest.mark.parametrize("state", list(TxnState))
def test_only_an_open_transaction_times_out(state: TxnState) -> None:
    """T6: each Ongoing transaction ends within its timeout and the check interval."""
    txn = transaction(state, timeout_ms=TIMEOUT_MS)
    is_open = state is TxnState.ONGOING
    assert timeout_at_ms(txn) == (START_MS + TIMEOUT_MS if is_open else None)
    assert not has_timed_out(txn, False, START_MS + TIMEOUT_MS)
    assert has_timed_out(txn, False, START_MS + TIMEOUT_MS + 1) is is_open
    assert not has_timed_out(txn, True, START_MS + TIMEOUT_MS + 1)


def test_transaction_in_two_phase_commit_never_times_out() -> None:
    """KIP-939: its timeout is the largest number."""
    txn = transaction(timeout_ms=2**31 - 1)
    assert timeout_at_ms(txn) is None
    assert not has_timed_out(txn, False, 2**62)


@pytest.mark.parametrize("state", list(TxnState))
def test_only_an_idle_transactional_id_expires(state: TxnState) -> None:
    txn = transaction(state)
    assert not has_expired(txn, False, START_MS + 999, 1_000)
    assert has_expired(txn, False, START_MS + 1_000, 1_000) is (state in IDLE)
    assert not has_expired(txn, True, START_MS + 1_000, 1_000)
