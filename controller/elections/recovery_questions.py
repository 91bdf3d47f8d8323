"""Queries of unclean recovery: pending partitions per broker, batching and retry backoff.

A broker has at most one request in flight, with at most 1,000 partitions. Partitions without a
usable answer are queried again after all others. A broker without useful answers is retried with a
backoff that doubles each time, so that an unreachable broker costs nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from protocol.messages.get_replica_log_info import PARTITIONS_PER_REQUEST_MAX

PAUSE_FIRST_MS: Final = 50.0
PAUSE_MAX_MS: Final = 2_000.0

PartitionKey: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""


class Question(NamedTuple):
    """One request to one broker."""

    broker_id: int
    partitions: tuple[PartitionKey, ...]


class _BrokerQueries:
    """Pending queries and backoff of one broker."""

    __slots__ = ("not_before_ms", "pause_ms", "under_way", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[PartitionKey, None] = {}
        self.under_way: Question | None = None
        self.pause_ms = PAUSE_FIRST_MS
        self.not_before_ms = 0.0


class Questions:
    """Pending queries by broker."""

    __slots__ = ("_brokers",)

    def __init__(self) -> None:
        self._brokers: dict[int, _BrokerQueries] = {}

    def want(self, broker_id: int, partition: PartitionKey) -> None:
        """Add a query to the broker about the partition."""
        self._brokers.setdefault(broker_id, _BrokerQueries()).wanted[partition] = None

    def drop(self, broker_id: int, partition: PartitionKey) -> None:
        """Remove a pending query; the broker must have one."""
        queries = self._brokers[broker_id]
        queries.wanted.pop(partition, None)
        self._forget(broker_id, queries)

    def take(self, now_ms: float) -> list[Question]:
        """Return the requests to send now; each is in flight until `settle`."""
        questions: list[Question] = []
        for broker_id, queries in self._brokers.items():
            if queries.wanted and queries.under_way is None and queries.not_before_ms <= now_ms:
                partitions = tuple(islice(queries.wanted, PARTITIONS_PER_REQUEST_MAX))
                queries.under_way = Question(broker_id, partitions)
                questions.append(queries.under_way)
        return questions

    def settle(self, question: Question, now_ms: float, *, useful: bool) -> bool:
        """End a request that was answered or failed.

        Args:
            useful: the answer contained something new. Partitions that are still pending are
                queried again
                last.

        Returns: False if the request is from before `clear`.
        """
        queries = self._brokers.get(question.broker_id)
        if queries is None or queries.under_way is not question:
            return False
        queries.under_way = None
        if useful:
            queries.pause_ms, queries.not_before_ms = PAUSE_FIRST_MS, now_ms
        else:
            queries.not_before_ms = now_ms + queries.pause_ms
            queries.pause_ms = min(queries.pause_ms * 2, PAUSE_MAX_MS)
        for partition in question.partitions:
            if partition in queries.wanted:
                del queries.wanted[partition]
                queries.wanted[partition] = None
        self._forget(question.broker_id, queries)
        return True

    def encourage(self) -> None:
        """Reset all backoffs, after a change of brokers."""
        for queries in self._brokers.values():
            queries.pause_ms, queries.not_before_ms = PAUSE_FIRST_MS, 0.0

    def due_ms(self) -> float | None:
        """Return when `take` has the next request; None until something changes."""
        return min(
            (
                queries.not_before_ms
                for queries in self._brokers.values()
                if queries.wanted and queries.under_way is None
            ),
            default=None,
        )

    @property
    def answers_come(self) -> bool:
        """Return whether a broker that is not in backoff has queries pending."""
        return any(
            queries.wanted and queries.pause_ms == PAUSE_FIRST_MS
            for queries in self._brokers.values()
        )

    def are_for(self, broker_id: int) -> bool:
        """Return whether queries to that broker are pending."""
        queries = self._brokers.get(broker_id)
        return queries is not None and bool(queries.wanted)

    def clear(self) -> None:
        """Start over: the connections are closed, so no request is in flight either."""
        self._brokers.clear()

    def _forget(self, broker_id: int, queries: _BrokerQueries) -> None:
        if not queries.wanted and queries.under_way is None:
            del self._brokers[broker_id]
