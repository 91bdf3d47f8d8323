"""Queues of items for other brokers: one request in flight per broker.

Items that arrive while a request is in flight go into the next one. So a busy broker receives few
large requests, and an idle one receives each item at once. The items of a queue are independent of
each other: one that waits for its retry does not delay later ones. No broker delays another one,
because each has its own limits, its own request in flight and its own backoff.

The user of the queue sends what `next_request` returns and reports the end of each request with
`answered` or `failed`. With a `Backoff` the queue keeps failed items for the next attempt, without
one it returns them. It returns an item once: as failed, or at its deadline, even if its request is
in flight. Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)

DOUBLINGS_MAX: Final = 16
NEVER_MS: Final = float("inf")
AT_ONCE_MS: Final = -NEVER_MS


class QueueLimits(NamedTuple):
    """Limits of one broker's items. One item may always wait, and fill a request alone."""

    items: int
    """Items that wait or are in flight."""
    size_bytes: int
    request_items: int
    request_bytes: int


class Backoff(NamedTuple):
    """Retry of failed items after a pause that doubles up to a limit."""

    first_ms: float
    max_ms: float

    def pause_ms(self, failures: int) -> float:
        """Return the pause after this number of failures in a row, from 1."""
        doublings = min(failures - 1, DOUBLINGS_MAX)
        return float(min(self.first_ms * 2.0**doublings, self.max_ms))


class _Entry:
    """The state of one item."""

    __slots__ = ("deadline_ms", "due_ms", "failures", "size_bytes")

    def __init__(self, size_bytes: int, deadline_ms: float) -> None:
        self.size_bytes = size_bytes
        self.deadline_ms = deadline_ms
        self.due_ms = AT_ONCE_MS
        self.failures = 0


class _Lane(Generic[T]):
    """The items of one broker, in the order of arrival."""

    __slots__ = ("due_ms", "failures", "in_flight", "sent", "size_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[T, _Entry] = {}
        self.sent: dict[T, _Entry] = {}
        self.in_flight = False
        self.size_bytes = 0
        self.failures = 0
        self.due_ms = AT_ONCE_MS

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sent)

    def next_due_ms(self) -> float | None:
        """Return the earliest time of the next request, or None if there is nothing to send."""
        if self.in_flight or not self.waiting:
            return None
        return max(self.due_ms, min(entry.due_ms for entry in self.waiting.values()))

    def take(self, now_ms: float, limits: QueueLimits) -> list[T]:
        """Move the items of the next request from `waiting` to `sent`."""
        size_bytes = 0
        for item, entry in self.waiting.items():
            if entry.due_ms > now_ms:
                continue
            size_bytes += entry.size_bytes
            if self.sent and size_bytes > limits.request_bytes:
                break
            self.sent[item] = entry
            if len(self.sent) == limits.request_items:
                break
        for item in self.sent:
            del self.waiting[item]
        return list(self.sent)

    def remove(self, item: T) -> bool:
        """Remove an item. Returns: whether it was here."""
        entry = self.waiting.pop(item, None) or self.sent.pop(item, None)
        if entry is not None:
            self.size_bytes -= entry.size_bytes
        return entry is not None

    def overdue(self, now_ms: float) -> list[T]:
        found = [
            item
            for entries in (self.sent, self.waiting)
            for item, entry in entries.items()
            if entry.deadline_ms <= now_ms
        ]
        for item in found:
            self.remove(item)
        return found


class PeerQueues(Generic[T]):
    """The queues of one purpose, by broker. An item is in the queue of a broker at most once."""

    def __init__(self, limits: QueueLimits, backoff: Backoff | None = None) -> None:
        """Set up empty queues. `backoff`: None if failed items are not sent again."""
        self._limits = limits
        self._backoff = backoff
        self._lanes: dict[int, _Lane[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def add(self, broker_id: int, item: T, size_bytes: int, deadline_ms: float = NEVER_MS) -> bool:
        """Queue an item for a broker. Returns: False if the broker's queue is full."""
        lane = self._lanes.get(broker_id)
        if lane is None:
            lane = self._lanes[broker_id] = _Lane()
        is_full = len(lane) >= self._limits.items or (
            lane.size_bytes + size_bytes > self._limits.size_bytes
        )
        if len(lane) and is_full:
            return False
        lane.waiting[item] = _Entry(size_bytes, deadline_ms)
        lane.size_bytes += size_bytes
        return True

    def withdraw(self, broker_id: int, item: T) -> bool:
        """Remove an item; if its request is in flight, its answer is ignored. Returns: whether it
        was queued."""
        lane = self._lanes.get(broker_id)
        if lane is None or not lane.remove(item):
            return False
        self._forget_empty(broker_id)
        return True

    def ready(self, now_ms: float) -> list[int]:
        """Return the brokers for which `next_request` has items now."""
        return [
            broker_id
            for broker_id, lane in self._lanes.items()
            if (due_ms := lane.next_due_ms()) is not None and due_ms <= now_ms
        ]

    def next_request(self, broker_id: int, now_ms: float) -> list[T]:
        """Return the items of the broker's next request, none if no request is due. If there are
        some, the caller must report the end of their request with `answered` or `failed`."""
        lane = self._lanes.get(broker_id)
        due_ms = None if lane is None else lane.next_due_ms()
        if lane is None or due_ms is None or due_ms > now_ms:
            return []
        lane.in_flight = True
        return lane.take(now_ms, self._limits)

    def answered(self, broker_id: int, now_ms: float, again: Collection[T] = ()) -> list[T]:
        """End the request in flight after a response. `again` has the items that the broker could
        not serve yet, each with its own backoff.

        Returns: the items of `again` that are not retried, because the queue has no backoff.
        """
        lane = self._lanes[broker_id]
        lane.failures, lane.due_ms = 0, AT_ONCE_MS
        return self._end(broker_id, lane, again, now_ms)

    def failed(self, broker_id: int, now_ms: float) -> list[T]:
        """End the request in flight without a valid response: the broker has a backoff.

        Returns: the items of the request if the queue has no backoff, else none.
        """
        lane = self._lanes[broker_id]
        if self._backoff is not None:
            lane.failures += 1
            lane.due_ms = now_ms + self._backoff.pause_ms(lane.failures)
        return self._end(broker_id, lane, list(lane.sent), None)

    def _end(
        self, broker_id: int, lane: _Lane[T], again: Collection[T], served_ms: float | None
    ) -> list[T]:
        """Put items of the request back before those that have arrived since. With `served_ms`,
        the time of the response, each has failed by itself."""
        failed = {item: lane.sent[item] for item in again if item in lane.sent}
        kept = failed if self._backoff is not None else {}
        lane.in_flight = False
        for item in [item for item in lane.sent if item not in kept]:
            lane.remove(item)
        lane.sent = {}
        if served_ms is not None and self._backoff is not None:
            for entry in kept.values():
                entry.failures += 1
                entry.due_ms = served_ms + self._backoff.pause_ms(entry.failures)
        lane.waiting = {**kept, **lane.waiting}
        self._forget_empty(broker_id)
        return [] if kept else list(failed)

    def registered(self, broker_id: int) -> None:
        """End the backoff of a broker that has registered again."""
        lane = self._lanes.get(broker_id)
        if lane is not None:
            lane.failures, lane.due_ms = 0, AT_ONCE_MS

    def overdue(self, now_ms: float) -> list[tuple[int, T]]:
        """Remove and return the items whose deadline has passed, with their brokers."""
        found = [
            (broker_id, item)
            for broker_id, lane in self._lanes.items()
            for item in lane.overdue(now_ms)
        ]
        for broker_id in {broker_id for broker_id, _ in found}:
            self._forget_empty(broker_id)
        return found

    def wake_ms(self) -> float | None:
        """Return the earliest time at which a request is due or a deadline passes, or None."""
        return min(self._times(), default=None)

    def _times(self) -> Iterator[float]:
        for lane in self._lanes.values():
            due_ms = lane.next_due_ms()
            if due_ms is not None:
                yield due_ms
            for entries in (lane.waiting, lane.sent):
                for entry in entries.values():
                    if entry.deadline_ms != NEVER_MS:
                        yield entry.deadline_ms

    def _forget_empty(self, broker_id: int) -> None:
        """Forget a broker without items, request in flight and backoff."""
        lane = self._lanes[broker_id]
        if not len(lane) and not lane.in_flight and not lane.failures:
            del self._lanes[broker_id]
