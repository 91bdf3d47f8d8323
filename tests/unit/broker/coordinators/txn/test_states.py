"""The table of transitions, pair by pair."""

from __future__ import annotations

import re
from itertools import product

import pytest

from broker.coordinators.txn import states
from broker.coordinators.txn.states import (
    STATUS,
    TRANSITIONS,
    InvalidTransition,
    TxnEvent,
    TxnState,
    next_state,
)

ROW = re.compile(r"^\| (\w+) +\| ([A-Z_]+) +\| (\w+) +\|$", re.M)


def test_transitions_are_those_of_the_documented_table() -> None:
    documented = {
        (TxnState(state), TxnEvent[event]): TxnState(after)
        for state, event, after in ROW.findall(states.__doc__ or "")
    }
    assert documented == TRANSITIONS
    assert len(documented) == 19


@pytest.mark.parametrize(("state", "event"), list(product(TxnState, TxnEvent)))
def test_pair_outside_of_the_table_raises(state: TxnState, event: TxnEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(InvalidTransition, match=f"{state.value} does not allow"):
            next_state(state, event)


def test_status_numbers_are_those_of_kafka() -> None:
    names = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit")
    names += ("CompleteAbort", "Dead", "PrepareEpochFence")
    assert {state.value: status for state, status in STATUS.items()} == {
        name: status for status, name in enumerate(names)
    }


def test_prepared_transaction_can_only_be_completed() -> None:
    """T8: no request ends a transaction whose outcome is written in another way."""
    for state in states.PREPARING:
        assert [event for at, event in TRANSITIONS if at is state] == [TxnEvent.MARKED]
