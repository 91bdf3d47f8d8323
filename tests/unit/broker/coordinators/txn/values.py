"""A transaction for the tests of the decisions."""

from __future__ import annotations

from typing import Any

from broker.coordinators.txn.states import TxnState
from broker.coordinators.txn.transaction import TopicPartition, Transaction

P, NEW = 1_000, 2_000
"""A producer id, and the one that replaces it."""
START_MS, NOW_MS = 50_000, 60_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def transaction(state: TxnState = TxnState.ONGOING, epoch: int = 7, **fields: Any) -> Transaction:
    """Return the value of a transactional id whose last change was at START_MS."""
    open_ = state in (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
    defaults: dict[str, Any] = {
        "producer_id": P,
        "timeout_ms": 30_000,
        "update_ms": START_MS,
        "start_ms": -1 if state is TxnState.EMPTY else START_MS,
        "partitions": frozenset({A0, B0}) if open_ else frozenset(),
        "previous_producer_id": P,
    }
    return Transaction(epoch=epoch, state=state, **{**defaults, **fields})
