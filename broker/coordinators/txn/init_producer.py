"""InitProducerId with a transactional id: a producer gets its id and epoch.

- Without an identity of its own the producer gets the next epoch. Any other producer with this
  transactional id is fenced.
- With its id and epoch (KIP-360) it continues after an error, unless another producer was
  initialised since. A repeat of that request gets the same answer.
- If a transaction is open, it is aborted first. The client gets CONCURRENT_TRANSACTIONS and tries
  again.
- A new producer id is used if the epochs of the present one are used up: the last epoch is
  reserved, so that the coordinator can always fence.

A repeat of the request that took the new producer id is recognised by `last_epoch`. No record
contains that, so after a failover of the coordinator the repeat is fenced, as in Kafka
(KAFKA-20357).
"""

from __future__ import annotations

from typing import NamedTuple

from broker.coordinators.txn.ending import decide_abort
from broker.coordinators.txn.outcome import Changed, Outcome, ProducerIdNeeded, Refused
from broker.coordinators.txn.states import TxnEvent, TxnState
from broker.coordinators.txn.transaction import (
    CLIENT_EPOCH_MAX,
    NO_START,
    UNLIMITED_MS,
    Transaction,
    is_pending,
)
from protocol.batch.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode


class InitProducer(NamedTuple):
    """The request. `producer_id` and `epoch` are the identity of a producer that continues;
    `two_phase` and `keep_prepared` belong to KIP-939."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    two_phase: bool = False
    keep_prepared: bool = False

    @property
    def continues(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


class InitLimits(NamedTuple):
    """`transaction.max.timeout.ms` and `transaction.two.phase.commit.enable`."""

    timeout_ms_max: int
    two_phase: bool


def refusal(transactional_id: str, asked: InitProducer, limits: InitLimits) -> ErrorCode | None:
    """Return the error of a request that no state of the transactional id allows."""
    if (asked.producer_id == NO_PRODUCER_ID) != (asked.epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    if asked.two_phase and not limits.two_phase:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if asked.keep_prepared:
        return ErrorCode.UNSUPPORTED_VERSION
    if not asked.two_phase and not 0 < asked.timeout_ms <= limits.timeout_ms_max:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def decide_init(
    txn: Transaction | None,
    asked: InitProducer,
    *,
    level: int,
    in_flight: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Outcome:
    """Decide a request that `refusal` accepts.

    Args:
        txn: None for a transactional id that has no state.
        level: the cluster's `transaction.version`.
        in_flight: a record of this transactional id is appended and not committed.
        new_producer_id: an id that the decision may use; None if the caller has not taken one.
    """
    if in_flight or (txn is not None and is_pending(txn, in_flight)):
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if txn is None:
        if new_producer_id is None:
            return ProducerIdNeeded()
        fresh = Transaction(
            new_producer_id, NO_PRODUCER_EPOCH, asked.timeout_ms, TxnState.EMPTY, now_ms
        )
        return _initialised(fresh, asked, now_ms, epoch=0, last_epoch=NO_PRODUCER_EPOCH)
    if asked.continues and not _is_own(txn, asked):
        return Refused(ErrorCode.PRODUCER_FENCED)
    if txn.state is TxnState.ONGOING:
        outcome = decide_abort(txn, level, new_producer_id, now_ms)
        if isinstance(outcome, ProducerIdNeeded):
            return outcome
        return Changed(outcome.after, code=ErrorCode.CONCURRENT_TRANSACTIONS)
    return _next_identity(txn, asked, new_producer_id, now_ms)


def _next_identity(
    txn: Transaction, asked: InitProducer, new_producer_id: int | None, now_ms: int
) -> Outcome:
    """Decide for a transactional id without an open transaction. Kafka returns
    UNKNOWN_SERVER_ERROR if the epochs are used up and the producer names another epoch; here such
    a producer is treated as any other."""
    if asked.continues and asked.epoch != txn.epoch:
        if asked.epoch != txn.last_epoch:
            return Refused(ErrorCode.PRODUCER_FENCED)
        # The response to this request was lost; no other producer was initialised since.
        return _initialised(txn, asked, now_ms)
    last_epoch = txn.epoch if asked.continues else NO_PRODUCER_EPOCH
    if not txn.epochs_used_up:
        return _initialised(txn, asked, now_ms, epoch=txn.epoch + 1, last_epoch=last_epoch)
    if new_producer_id is None:
        return ProducerIdNeeded()
    return _initialised(
        txn, asked, now_ms, producer_id=new_producer_id, epoch=0, last_epoch=last_epoch
    )


def _is_own(txn: Transaction, asked: InitProducer) -> bool:
    """Return whether the producer id is this transactional id's present one, or the one before and
    its epochs are used up: then the request may repeat the one that replaced it."""
    return asked.producer_id == txn.producer_id or (
        asked.producer_id == txn.previous_producer_id and asked.epoch >= CLIENT_EPOCH_MAX
    )


def _initialised(txn: Transaction, asked: InitProducer, now_ms: int, **identity: int) -> Changed:
    after = txn.moved(
        TxnEvent.INITIALISED,
        now_ms,
        timeout_ms=UNLIMITED_MS if asked.two_phase else asked.timeout_ms,
        partitions=frozenset(),
        start_ms=NO_START,
        **identity,
    )
    return Changed(after, after.producer_id, after.epoch)
