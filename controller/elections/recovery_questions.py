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


class _Asked:
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
        self._brokers: dict[int, _Asked] = {}

    def want(self, broker_id: int, partition: PartitionKey) -> None:
        """Add a query to the broker about the partition."""
        self._brokers.setdefault(broker_id, _Asked()).wanted[partition] = None

    def drop(self, broker_id: int, partition: PartitionKey) -> None:
        """Remove a pending query; the broker must have one."""
        asked = self._brokers[broker_id]
        asked.wanted.pop(partition, None)
        self._forget(broker_id, asked)

    def take(self, now_ms: float) -> list[Question]:
        """Return the requests to send now; each is in flight until `settle`."""
        questions: list[Question] = []
        for broker_id, asked in self._brokers.items():
            if asked.wanted and asked.under_way is None and asked.not_before_ms <= now_ms:
                partitions = tuple(islice(asked.wanted, PARTITIONS_PER_REQUEST_MAX))
                asked.under_way = Question(broker_id, partitions)
                questions.append(asked.under_way)
        return questions

    def settle(self, question: Question, now_ms: float, *, useful: bool) -> bool:
        """End a request that was answered or failed.

        Args:
            useful: the answer contained something new. Partitions that are still pending are
                queried again
                last.

        Returns: False if the request is from before `clear`.
        """
        asked = self._brokers.get(question.broker_id)
        if asked is None or asked.under_way is not question:
            return False
        asked.under_way = None
        if useful:
            asked.pause_ms, asked.not_before_ms = PAUSE_FIRST_MS, now_ms
        else:
            asked.not_before_ms = now_ms + asked.pause_ms
            asked.pause_ms = min(asked.pause_ms * 2, PAUSE_MAX_MS)
        for partition in question.partitions:
            if partition in asked.wanted:
                del asked.wanted[partition]
                asked.wanted[partition] = None
        self._forget(question.broker_id, asked)
        return True

    def encourage(self) -> None:
        """Reset all backoffs, after a change of brokers."""
        for asked in self._brokers.values():
            asked.pause_ms, asked.not_before_ms = PAUSE_FIRST_MS, 0.0

    def due_ms(self) -> float | None:
        """Return when `take` has the next request; None until something changes."""
        return min(
            (
                asked.not_before_ms
                for asked in self._brokers.values()
                if asked.wanted and asked.under_way is None
            ),
            default=None,
        )

    @property
    def answers_come(self) -> bool:
        """Return whether a broker that is not in backoff has queries pending."""
        return any(
            asked.wanted and asked.pause_ms == PAUSE_FIRST_MS for asked in self._brokers.values()
        )

    def are_for(self, broker_id: int) -> bool:
        """Return whether queries to that broker are pending."""
        asked = self._brokers.get(broker_id)
        return asked is not None and bool(asked.wanted)

    def clear(self) -> None:
        """Start over: the connections are closed, so no request is in flight either."""
        self._brokers.clear()

    def _forget(self, broker_id: int, asked: _Asked) -> None:
        if not asked.wanted and asked.under_way is None:
            del self._brokers[broker_id]
