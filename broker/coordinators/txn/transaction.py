"""The value of a transactional id: its producer, its epochs, and its present transaction.

A `Transaction` is immutable. A decision makes the next one with `moved`; the coordinator appends it
and shows it to clients once it is committed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from broker.coordinators.txn.states import PREPARING, TxnEvent, TxnState, next_state
from protocol.batch.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_MAX: Final = 2**15 - 1
"""Reserved for the coordinator: it can fence the last epoch that a client may have."""
CLIENT_EPOCH_MAX: Final = EPOCH_MAX - 1
NO_START: Final = -1
UNLIMITED_MS: Final = 2**31 - 1
"""Timeout of a transaction in two-phase commit (KIP-939): it never times out."""
EPOCH_PER_TRANSACTION: Final = 2
"""From this transaction version on, the end of each transaction raises the epoch (KIP-890)."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Transaction(NamedTuple):
    """State of a transactional id.

    - `last_epoch`: the epoch that the present producer had before, so that a repeated request is
      recognised (KIP-360). No record contains it: a coordinator that has loaded the state does not
      know it.
    - `previous_producer_id`: the id before the last change, whether or not the change replaced it.
    - `next_producer_id`: the id that replaces `producer_id` once the transaction has ended, because
      the epochs are used up.
    - `partitions`: those that need an end marker.
    - `client_version`: transaction version of the client that made the last change of the
      transaction.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TxnState
    update_ms: int
    start_ms: int = NO_START
    partitions: frozenset[TopicPartition] = frozenset()
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def epochs_used_up(self) -> bool:
        """True if the next epoch is reserved for the coordinator."""
        return self.epoch >= CLIENT_EPOCH_MAX

    def moved(self, event: TxnEvent, now_ms: int, **changes: Any) -> Transaction:
        """Return the value after an event. Raises InvalidTransition."""
        return self._replace(
            state=next_state(self.state, event),
            previous_producer_id=self.producer_id,
            update_ms=now_ms,
            **changes,
        )


def is_pending(txn: Transaction, in_flight: bool) -> bool:
    """Return whether a transition of this id is not complete: its record is appended and not
    committed (`in_flight`), or its markers are being written."""
    return in_flight or txn.state in PREPARING
