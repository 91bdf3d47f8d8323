"""Time limits: transactions that stay open too long, and transactional ids that are not used."""

from __future__ import annotations

from broker.coordinators.txn.states import IDLE, TxnState
from broker.coordinators.txn.transaction import UNLIMITED_MS, Transaction


def timeout_at_ms(txn: Transaction) -> int | None:
    """Return the last millisecond (wall clock) in which the open transaction has not timed out;
    None if no transaction is open, or in two-phase commit (KIP-939)."""
    if txn.state is not TxnState.ONGOING or txn.timeout_ms == UNLIMITED_MS:
        return None
    return txn.start_ms + txn.timeout_ms


def has_timed_out(txn: Transaction, in_flight: bool, now_ms: int) -> bool:
    """Return whether the coordinator must abort the transaction. A record in flight may end it, so
    the coordinator waits for its outcome."""
    limit_ms = timeout_at_ms(txn)
    return not in_flight and limit_ms is not None and limit_ms < now_ms


def has_expired(txn: Transaction, in_flight: bool, now_ms: int, expiration_ms: int) -> bool:
    """Return whether a tombstone may remove the transactional id
    (`transactional.id.expiration.ms`)."""
    return not in_flight and txn.state in IDLE and txn.update_ms <= now_ms - expiration_ms
