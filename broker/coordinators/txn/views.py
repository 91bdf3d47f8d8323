"""Answers of DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from broker.coordinators.txn.states import TxnState
from broker.coordinators.txn.transaction import Transaction
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsResponse
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def describe(
    transactional_id: str, txn: Transaction | None
) -> DescribeTransactionsResponse.TransactionState:
    """Return the description of a transactional id; TRANSACTIONAL_ID_NOT_FOUND without a state."""
    described = DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id)
    if not transactional_id:
        described.error_code = ErrorCode.INVALID_REQUEST
    elif txn is None:
        described.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    else:
        described.producer_id = txn.producer_id
        described.producer_epoch = txn.epoch
        described.transaction_state = txn.state.value
        described.transaction_timeout_ms = txn.timeout_ms
        described.transaction_start_time_ms = txn.start_ms
        described.topics = [
            DescribeTransactionsResponse.TopicData(
                topic=topic, partitions=[each.partition for each in of_topic]
            )
            for topic, of_topic in groupby(sorted(txn.partitions), attrgetter("topic"))
        ]
    return described


class Filters(NamedTuple):
    """Conditions of a ListTransactions. An empty set means any; so does a duration below 0.
    `states` is None if the request names unknown states only."""

    states: frozenset[TxnState] | None
    producer_ids: frozenset[int]
    duration_ms: int
    unknown_states: list[str]

    @classmethod
    def of(cls, request: ListTransactionsRequest) -> Filters:
        """Return the filters of a request, without its pattern. Names of states are compared
        exactly."""
        names = {state.value: state for state in TxnState}
        known = frozenset(names[name] for name in request.state_filters if name in names)
        return cls(
            states=known if known or not request.state_filters else None,
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
            unknown_states=[name for name in request.state_filters if name not in names],
        )

    def match(self, txn: Transaction, now_ms: int) -> bool:
        """Return whether the transaction meets all conditions; it must have lasted longer than the
        duration."""
        if self.states is None or (self.states and txn.state not in self.states):
            return False
        if self.producer_ids and txn.producer_id not in self.producer_ids:
            return False
        return self.duration_ms < 0 or now_ms - txn.start_ms > self.duration_ms


def listed(
    transactions: Iterable[tuple[str, Transaction]],
    filters: Filters,
    matches: Callable[[str], bool],
    now_ms: int,
) -> Iterator[ListTransactionsResponse.TransactionState]:
    """Yield the entries of a ListTransactions response. `matches` applies the pattern to a
    transactional id."""
    for transactional_id, txn in transactions:
        if filters.match(txn, now_ms) and matches(transactional_id):
            yield ListTransactionsResponse.TransactionState(
                transactional_id=transactional_id,
                producer_id=txn.producer_id,
                transaction_state=txn.state.value,
            )
