"""Requests that wait: for a high watermark, for bytes, or for their time to run out.

The purgatory knows two things about a wait: its deadline and its connection. The condition that it
waits for is the concern of its class; the partition that changes notifies it.

Deadlines sit in a wheel of buckets, one per `TICK_MS`, and a heap holds only bucket numbers. Adding
and removing a wait is one dictionary operation each, because nearly all waits are removed long
before their deadline. A heap of waits would keep each answered produce request alive for its thirty
seconds. A deadline is rounded up to its bucket, never down, so no wait ends early.

This module takes time as an argument; `waiting_requests` arms the event loop's timer with
`next_deadline_ms`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

TICK_MS: Final = 5


class Wait:
    """One waiting request. Subclasses implement the action at the deadline."""

    __slots__ = ("bucket", "owner")

    def __init__(self) -> None:
        self.bucket = -1  # its place in the wheel; -1 when it is not waiting
        self.owner = 0  # the connection's id; 0 for waits that belong to no connection

    @property
    def waiting(self) -> bool:
        """True between `Purgatory.add` and the first of answer, deadline and disconnect."""
        return self.bucket >= 0

    def expired(self) -> None:
        """Handle the passed deadline; the wait has already left the purgatory."""
        raise AssertionError(f"{type(self).__name__} has no answer to its deadline")

    def dropped(self) -> None:
        """Handle the end of the connection, which makes an answer pointless. The default does
        nothing."""


class Purgatory:
    """All waits of one broker, by deadline and by connection."""

    __slots__ = ("_bucket_heap", "_buckets", "_owners")

    def __init__(self) -> None:
        # Dictionaries as ordered sets: iteration order must not depend on object addresses, or one
        # seed would not replay one run.
        self._buckets: dict[int, dict[Wait, None]] = {}
        self._bucket_heap: list[int] = []
        self._owners: dict[int, dict[Wait, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def count_by_class(self) -> Mapping[type[Wait], int]:
        """Return the number of waits of each class."""
        return Counter(type(wait) for bucket in self._buckets.values() for wait in bucket)

    def add(self, wait: Wait, deadline_ms: float, owner: int = 0) -> None:
        """Start a wait until `deadline_ms` (monotonic) on behalf of connection `owner`."""
        assert wait.bucket < 0, "a wait is in the purgatory once"
        number = max(0, math.ceil(deadline_ms / TICK_MS))
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._bucket_heap, number)
        bucket[wait] = None
        wait.bucket = number
        wait.owner = owner
        if owner:
            self._owners.setdefault(owner, {})[wait] = None

    def remove(self, wait: Wait) -> bool:
        """End a wait whose answer is ready. Returns: False if it has already ended, so the caller
        must not answer."""
        if wait.bucket < 0:
            return False
        self._unbucket(wait)
        self._forget(wait)
        return True

    def expire(self, now_ms: float) -> int:
        """End all waits whose deadline is at or before `now_ms`; return how many."""
        ended = 0
        heap = self._bucket_heap
        while heap and heap[0] * TICK_MS <= now_ms:
            bucket = self._buckets.pop(heapq.heappop(heap))
            for wait in bucket:
                # Answering one wait may have ended another of the same bucket.
                if wait.bucket < 0:
                    continue
                self._forget(wait)
                wait.expired()
                ended += 1
        return ended

    def drop_owner(self, owner: int) -> int:
        """End all waits of a closed connection without an answer; return how many."""
        waits = self._owners.pop(owner, None)
        if not waits:
            return 0
        for wait in waits:
            self._unbucket(wait)
            wait.bucket = -1
        for wait in waits:
            wait.dropped()
        return len(waits)

    def next_deadline_ms(self) -> float | None:
        """Return when `expire` is due next, None when nothing waits."""
        heap = self._bucket_heap
        while heap and not self._buckets[heap[0]]:
            del self._buckets[heapq.heappop(heap)]
        return float(heap[0] * TICK_MS) if heap else None

    def _unbucket(self, wait: Wait) -> None:
        # The emptied bucket stays until its time comes: its number is in the heap. While `expire`
        # iterates over a bucket, that bucket is missing.
        bucket = self._buckets.get(wait.bucket)
        if bucket is not None:
            bucket.pop(wait, None)

    def _forget(self, wait: Wait) -> None:
        wait.bucket = -1
        if wait.owner:
            waits = self._owners[wait.owner]
            del waits[wait]
            if not waits:
                del self._owners[wait.owner]
