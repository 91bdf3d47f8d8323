"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinators.txn.states import TxnState
from broker.coordinators.txn.views import Filters, describe, listed
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import ListTransactionsRequest
from tests.unit.broker.coordinators.txn.values import A0, A1, B0, NOW_MS, START_MS, P, transaction

ALL = {
    "a": transaction(),
    "b": transaction(TxnState.EMPTY, producer_id=P + 1),
    "c": transaction(TxnState.COMPLETE_COMMIT, start_ms=NOW_MS - 1_000),
}


def names(matches: Any = lambda name: True, **filters: Any) -> list[str]:
    found = Filters.of(ListTransactionsRequest(**filters))
    return [one.transactional_id for one in listed(ALL.items(), found, matches, NOW_MS)]


def test_describe_returns_the_transaction_with_its_partitions() -> None:
    described = describe("t", transaction(partitions=frozenset({B0, A1, A0})))
    assert (described.error_code, described.transactional_id) == (ErrorCode.NONE, "t")
    assert (described.producer_id, described.producer_epoch) == (P, 7)
    assert (described.transaction_state, described.transaction_timeout_ms) == ("Ongoing", 30_000)
    assert described.transaction_start_time_ms == START_MS
    assert [(one.topic, one.partitions) for one in described.topics] == [("a", [0, 1]), ("b", [0])]


@pytest.mark.parametrize(
    ("name", "code"),
    [("t", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)],
)
def test_describe_without_a_state_returns_an_error(name: str, code: ErrorCode) -> None:
    described = describe(name, None)
    assert (described.error_code, described.transactional_id) == (code, name)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"state_filters": ["Ongoing", "Empty"]}, ["a", "b"]),
        ({"state_filters": ["Ongoing", "ongoing"]}, ["a"]),
        ({"state_filters": ["ongoing"]}, []),
        ({"producer_id_filters": [P]}, ["a", "c"]),
        ({"duration_filter": 1_000}, ["a", "b"]),
        ({"duration_filter": 999}, ["a", "b", "c"]),
        ({"duration_filter": NOW_MS - START_MS, "state_filters": ["Ongoing"]}, []),
        ({"duration_filter": 0, "producer_id_filters": [P + 1]}, ["b"]),
    ],
)
def test_list_returns_the_transactions_that_meet_all_conditions(
    filters: dict[str, Any], expected: list[str]
) -> None:
    """KIP-664, KIP-994: the duration must be exceeded; one without a start is older than any."""
    assert names(**filters) == expected


def test_list_applies_the_pattern_to_the_transactional_id() -> None:
    """KIP-1152: a pattern of transactional ids."""
    assert names(lambda name: name > "a") == ["b", "c"]


def test_filters_report_unknown_states() -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "ongoing", "x"])
    assert Filters.of(request).unknown_states == ["ongoing", "x"]
