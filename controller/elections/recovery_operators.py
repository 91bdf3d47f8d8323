"""Operators' requests that wait for elections by the longest log.

A partition's outcome is decided when it gets a leader or is deleted. It becomes part of the request
once the records are committed, so an operator never learns of an election that a new controller
could undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.elections.recovery_events import Decided
from controller.elections.recovery_questions import PartitionKey
from controller.elections.recovery_requests import RecoveryOutcome, RecoveryRequest


class WaitingRequests:
    """Requests without all outcomes, and the outcomes that are not committed yet."""

    __slots__ = ("_by_partition", "_decided", "_requests")

    def __init__(self) -> None:
        self._requests: dict[RecoveryRequest, None] = {}
        self._by_partition: dict[PartitionKey, list[RecoveryRequest]] = {}
        self._decided: list[Decided] = []

    def clear(self) -> None:
        """Remove all requests and outcomes."""
        self._requests.clear()
        self._by_partition.clear()
        self._decided.clear()

    def add(self, request: RecoveryRequest) -> None:
        """Let a request wait for all its partitions."""
        self._requests[request] = None
        for key in request.waiting:
            self._by_partition.setdefault(key, []).append(request)

    def remove(self, request: RecoveryRequest) -> list[PartitionKey]:
        """Remove a request. Returns: its partitions without a decision."""
        self._requests.pop(request, None)
        undecided = []
        for key in request.waiting:
            requests = self._by_partition.get(key)
            if requests is not None and request in requests:
                undecided.append(key)
                requests.remove(request)
                if not requests:
                    del self._by_partition[key]
        return undecided

    def of(self, key: PartitionKey) -> Sequence[RecoveryRequest]:
        """Return the requests that wait for a decision about the partition."""
        return self._by_partition.get(key, ())

    def decide(self, key: PartitionKey, outcome: RecoveryOutcome) -> None:
        """Note the outcome of a partition for all requests that wait for it."""
        for request in self._by_partition.pop(key, ()):
            self._decided.append(Decided(request, key, outcome))

    def take_decided(self) -> tuple[Decided, ...]:
        """Return the outcomes since the last call."""
        if not self._decided:
            return ()
        decided, self._decided = self._decided, []
        return tuple(decided)

    def commit(self, decided: Iterable[Decided]) -> tuple[RecoveryRequest, ...]:
        """Add committed outcomes to their requests. Returns: the requests that are complete now."""
        for request, partition, outcome in decided:
            if request in self._requests:
                request.waiting.pop(partition, None)
                request.outcomes[partition] = outcome
        complete = tuple([request for request in self._requests if not request.waiting])
        for request in complete:
            del self._requests[request]
        return complete

    def expired(self, now_ms: float) -> tuple[RecoveryRequest, ...]:
        """Return the requests that are incomplete at their deadline."""
        return tuple([r for r in self._requests if r.deadline_ms <= now_ms and r.waiting])

    def due_ms(self) -> float | None:
        """Return the first deadline, as monotonic time; None without a request."""
        return min((request.deadline_ms for request in self._requests), default=None)
