"""The end of a transaction: EndTxn, aborts by the coordinator, completion after the markers.

EndTxn before version 5 leaves the epoch as it is. A repeated request finds the result in the state:
a commit succeeds in CompleteCommit, an abort in CompleteAbort.

EndTxn 5 raises the epoch and returns it (KIP-890). A request with the epoch before is the repeat of
one that has had its effect, so it never ends a later transaction (T7). A producer may abort without
knowing whether the transaction has any partition; the abort then raises the epoch, too.

|                | abort, repeated | abort, new      | commit, repeated | commit, new     |
|----------------|-----------------|-----------------|------------------|-----------------|
| Empty          | PRODUCER_FENCED | raises          | PRODUCER_FENCED  | INVALID_TXN_STATE |
| CompleteAbort  | success         | raises          | PRODUCER_FENCED  | INVALID_TXN_STATE |
| CompleteCommit | INVALID_TXN_STATE | raises        | success          | INVALID_TXN_STATE |

A repeated commit in CompleteAbort arrives if the coordinator aborted the transaction at the same
time. Kafka 4.4 returns INVALID_TXN_STATE, which ends an application of Kafka Streams; later
releases return PRODUCER_FENCED, as here (KAFKA-20785).

If the epochs are used up, the transaction takes a new producer id along: the markers have epoch
32767, and the completed transaction has the new id with epoch 0.
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.txn.outcome import (
    Changed,
    Outcome,
    ProducerIdNeeded,
    Refused,
    Unchanged,
)
from broker.coordinators.txn.states import IDLE, TxnEvent, TxnState
from broker.coordinators.txn.transaction import (
    CLIENT_EPOCH_MAX,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    Transaction,
    is_pending,
)
from protocol.batch.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode

RAISES_EPOCH_FROM: Final = 5
"""Version of EndTxn."""


def decide_end(
    txn: Transaction | None,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    version: int,
    in_flight: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Outcome:
    """Decide an EndTxn of a client.

    Args:
        version: of the request.
        in_flight: a record of this transactional id is appended and not committed.
        new_producer_id: an id that the decision may use; None if the caller has not taken one.
    """
    if txn is None:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    pending = is_pending(txn, in_flight)
    if version < RAISES_EPOCH_FROM:
        return _end_in_epoch(txn, producer_id, epoch, commit, pending, now_ms)
    # The pending check is first (KAFKA-18464, KAFKA-18660): the producer may already use the epoch
    # or the producer id that the pending transition leads to.
    if pending:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    code, repeated = _identity(txn, producer_id, epoch)
    if code is not None:
        return Refused(code)
    if repeated:
        return _repeated(txn, commit)
    if txn.state is TxnState.ONGOING:
        event = TxnEvent.COMMITTED if commit else TxnEvent.ABORTED
        return _raised(txn, event, new_producer_id, now_ms)
    if commit:
        return Refused(ErrorCode.INVALID_TXN_STATE)
    return _raised(txn, TxnEvent.EMPTY_ABORTED, new_producer_id, now_ms)


def _end_in_epoch(
    txn: Transaction, producer_id: int, epoch: int, commit: bool, pending: bool, now_ms: int
) -> Outcome:
    """Decide an EndTxn before version 5."""
    if txn.producer_id != producer_id:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if txn.epoch != epoch:
        return Refused(ErrorCode.PRODUCER_FENCED)
    if pending:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if txn.state is TxnState.ONGOING:
        event = TxnEvent.COMMITTED if commit else TxnEvent.ABORTED
        return _answered(
            txn.moved(event, now_ms, next_producer_id=NO_PRODUCER_ID, client_version=0), now_ms
        )
    if txn.state is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT):
        return Unchanged(txn.producer_id, txn.epoch)
    return Refused(ErrorCode.INVALID_TXN_STATE)


def _identity(txn: Transaction, producer_id: int, epoch: int) -> tuple[ErrorCode | None, bool]:
    """Return the error for this identity, and whether it is that of a request before the last one:
    with the epoch, or with the producer id and its last epoch, that the last one replaced."""
    over = txn.previous_producer_id == producer_id and epoch == CLIENT_EPOCH_MAX and txn.epoch == 0
    if txn.producer_id != producer_id and not over:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, False
    repeated = over or txn.epoch == epoch + 1
    may_be_repeated = txn.state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
    if epoch != txn.epoch and not (repeated and may_be_repeated):
        return ErrorCode.PRODUCER_FENCED, False
    return None, repeated


def _repeated(txn: Transaction, commit: bool) -> Outcome:
    if txn.state is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT):
        return Unchanged(txn.producer_id, txn.epoch)
    return Refused(ErrorCode.PRODUCER_FENCED if commit else ErrorCode.INVALID_TXN_STATE)


def decide_abort(
    txn: Transaction, level: int, new_producer_id: int | None, now_ms: int
) -> Changed | ProducerIdNeeded:
    """Decide that the coordinator aborts an open transaction, which fences its producer.

    The epoch rises once, however often an append fails and the decision is repeated (KAFKA-9666,
    KAFKA-19367).

    Args:
        level: the cluster's `transaction.version`.
    """
    if level < EPOCH_PER_TRANSACTION:
        fenced = txn.moved(
            TxnEvent.FENCED,
            now_ms,
            epoch=min(txn.epoch + 1, EPOCH_MAX),
            last_epoch=NO_PRODUCER_EPOCH,
            client_version=0,
        )
        return Changed(fenced.moved(TxnEvent.ABORTED, now_ms))
    fenced = txn.moved(TxnEvent.FENCED, now_ms)
    return _raised(fenced, TxnEvent.ABORTED, new_producer_id, now_ms)


def _raised(
    txn: Transaction, event: TxnEvent, new_producer_id: int | None, now_ms: int
) -> Changed | ProducerIdNeeded:
    """End the transaction with a raised epoch, and with a new producer id if none is left."""
    next_id = NO_PRODUCER_ID
    if txn.epochs_used_up:
        if new_producer_id is None:
            return ProducerIdNeeded()
        next_id = new_producer_id
    # The start of an abort without partitions is not known, but a record of the end needs one.
    start_ms = now_ms if txn.state in IDLE else txn.start_ms
    prepared = txn.moved(
        event,
        now_ms,
        epoch=min(txn.epoch + 1, EPOCH_MAX),
        last_epoch=txn.epoch,
        next_producer_id=next_id,
        start_ms=start_ms,
        client_version=EPOCH_PER_TRANSACTION,
    )
    return _answered(prepared, now_ms)


def _answered(prepared: Transaction, now_ms: int) -> Changed:
    """Return the change, with the id and epoch that the completed transaction will have."""
    after = completed(prepared, now_ms)
    return Changed(prepared, after.producer_id, after.epoch)


def completed(txn: Transaction, now_ms: int) -> Transaction:
    """Return the value after all partitions have their marker. Raises InvalidTransition unless the
    state is PrepareCommit or PrepareAbort."""
    after = txn.moved(
        TxnEvent.MARKED, now_ms, partitions=frozenset(), next_producer_id=NO_PRODUCER_ID
    )
    takes_next = (
        txn.client_version >= EPOCH_PER_TRANSACTION and txn.next_producer_id != NO_PRODUCER_ID
    )
    return after._replace(producer_id=txn.next_producer_id, epoch=0) if takes_next else after
