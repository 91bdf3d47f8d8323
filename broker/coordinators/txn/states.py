"""States of a transactional id, and all transitions between them.

| state             | event         | next state        |
|-------------------|---------------|-------------------|
| Empty             | INITIALISED   | Empty             |
| CompleteCommit    | INITIALISED   | Empty             |
| CompleteAbort     | INITIALISED   | Empty             |
| Empty             | ADDED         | Ongoing           |
| Ongoing           | ADDED         | Ongoing           |
| CompleteCommit    | ADDED         | Ongoing           |
| CompleteAbort     | ADDED         | Ongoing           |
| Ongoing           | COMMITTED     | PrepareCommit     |
| Ongoing           | ABORTED       | PrepareAbort      |
| Ongoing           | FENCED        | PrepareEpochFence |
| PrepareEpochFence | ABORTED       | PrepareAbort      |
| Empty             | EMPTY_ABORTED | PrepareAbort      |
| CompleteCommit    | EMPTY_ABORTED | PrepareAbort      |
| CompleteAbort     | EMPTY_ABORTED | PrepareAbort      |
| PrepareCommit     | MARKED        | CompleteCommit    |
| PrepareAbort      | MARKED        | CompleteAbort     |
| Empty             | EXPIRED       | Dead              |
| CompleteCommit    | EXPIRED       | Dead              |
| CompleteAbort     | EXPIRED       | Dead              |

Any other pair is a bug in this program, never bad input: the decisions check a request before any
transition. PrepareEpochFence lasts only within one decision, and Dead is a tombstone: neither is
written as the state of a record.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from runtime.errors import InvariantViolated


class TxnState(Enum):
    """States of a transactional id. Values are the names that ListTransactions returns."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class TxnEvent(Enum):
    """Cause of a change of state."""

    INITIALISED = "a producer got its id and epoch"
    ADDED = "partitions were added to the transaction"
    COMMITTED = "the producer committed"
    ABORTED = "the producer aborted, or the coordinator aborts the fenced transaction"
    FENCED = "a new producer was initialised, or the transaction timed out"
    EMPTY_ABORTED = "the producer aborted without partitions (KIP-890)"
    MARKED = "all partitions have the end marker"
    EXPIRED = "transactional.id.expiration.ms passed without a change"


STATUS: Final[dict[TxnState, int]] = {state: status for status, state in enumerate(TxnState)}
"""The number of a state in a record."""

PREPARING: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
"""States in which markers are being written."""
IDLE: Final = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
"""States without an open transaction."""

TRANSITIONS: Final[dict[tuple[TxnState, TxnEvent], TxnState]] = {
    **{(state, TxnEvent.INITIALISED): TxnState.EMPTY for state in IDLE},
    **{(state, TxnEvent.ADDED): TxnState.ONGOING for state in (*IDLE, TxnState.ONGOING)},
    (TxnState.ONGOING, TxnEvent.COMMITTED): TxnState.PREPARE_COMMIT,
    (TxnState.ONGOING, TxnEvent.ABORTED): TxnState.PREPARE_ABORT,
    (TxnState.ONGOING, TxnEvent.FENCED): TxnState.PREPARE_EPOCH_FENCE,
    (TxnState.PREPARE_EPOCH_FENCE, TxnEvent.ABORTED): TxnState.PREPARE_ABORT,
    **{(state, TxnEvent.EMPTY_ABORTED): TxnState.PREPARE_ABORT for state in IDLE},
    (TxnState.PREPARE_COMMIT, TxnEvent.MARKED): TxnState.COMPLETE_COMMIT,
    (TxnState.PREPARE_ABORT, TxnEvent.MARKED): TxnState.COMPLETE_ABORT,
    **{(state, TxnEvent.EXPIRED): TxnState.DEAD for state in IDLE},
}


class InvalidTransition(InvariantViolated):
    """A (state, event) pair that TRANSITIONS does not have."""


def next_state(state: TxnState, event: TxnEvent) -> TxnState:
    """Return the state after `event`. Raises InvalidTransition for a pair not in the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(
            f"transaction state {state.value} does not allow event {event.name}"
        ) from None
