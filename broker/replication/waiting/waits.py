"""Waits of the purgatory: for commits and for bytes.

A wait is a small object that partitions call: `resolved` when an appended batch is committed (or
never will be), `more_bytes` when something became readable. It answers through a callable that its
request passed to it, so this module knows nothing of futures or responses. A wait whose connection
is gone calls `cancel` instead: a task that awaits its answer must end, too.

The callables receive the wait as an argument, so that they need not reference it. A request and its
wait that reference each other would keep the read records until the garbage collector runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker.replication.waiting.purgatory import Wait
from protocol.errors import ErrorCode

NONE = ErrorCode.NONE


def _nobody_awaits() -> None:
    return


class CommitWaiter(Protocol):
    """A request that waits for appended batches to be committed (acks=all)."""

    def resolved(self, slot: Any, error: ErrorCode) -> None:
        """Note that the batch registered with `slot` is committed, or cannot be any more."""


class ProduceWait(Wait):
    """A produce request of which `pending` partitions are not committed yet.

    A slot is the partition's part of the response; a failure is written into it.
    """

    __slots__ = ("_answer", "_cancel", "_mark", "pending")

    def __init__(
        self,
        mark: Callable[[Any, ErrorCode], None],
        answer: Callable[[ProduceWait], None],
        cancel: Callable[[], object] = _nobody_awaits,
    ) -> None:
        """Set the callables: `mark(slot, error)` writes an error into a slot, `answer(wait)` sends
        the response, `cancel()` reports that there will be none."""
        super().__init__()
        self._mark = mark
        self._answer = answer
        self._cancel = cancel
        self.pending: list[Any] = []

    def resolved(self, slot: Any, error: ErrorCode) -> None:
        for position, waiting in enumerate(self.pending):
            if waiting is slot:
                del self.pending[position]
                break
        else:
            return  # timed out or disconnected before
        if error is not NONE:
            self._mark(slot, error)
        if not self.pending:
            self._answer(self)

    def expired(self) -> None:
        """Answer REQUEST_TIMED_OUT for all that is not committed in time; it may still commit."""
        for slot in self.pending:
            self._mark(slot, ErrorCode.REQUEST_TIMED_OUT)
        self.pending.clear()
        self._answer(self)

    def dropped(self) -> None:
        self.pending.clear()
        self._cancel()


class DeleteRecordsWait(ProduceWait):
    """A request to delete records that not all in-sync replicas have carried out."""

    __slots__ = ()


class WaitingPlace(Protocol):
    """The place where a waiting fetch is registered for notifications."""

    def remove_fetch_wait(self, wait: FetchWait, /) -> None:
        """Remove a fetch that no longer waits."""


class FetchWait(Wait):
    """A fetch that found too little. Counting bytes is a hint: the read when it ends decides.

    `place` receives the notifications of the fetch's partitions.
    """

    __slots__ = (
        "_cancel",
        "_missing_bytes",
        "_ready",
        "interrupted",
        "over",
        "place",
        "superseded",
        "timed_out",
        "touched",
    )

    def __init__(
        self,
        missing_bytes: int,
        ready: Callable[[FetchWait], None],
        cancel: Callable[[], object] = _nobody_awaits,
    ) -> None:
        super().__init__()
        self._cancel = cancel
        self._missing_bytes = missing_bytes
        self._ready = ready
        self.place: WaitingPlace | None = None
        self.timed_out = False
        self.touched = False  # one of the partitions has changed
        self.interrupted = False  # something other than new bytes happened
        # the session's next fetch has arrived, so this one must be answered
        self.superseded = False
        self.over = False  # the connection is gone

    def more_bytes(self, size_bytes: int) -> None:
        """Note `size_bytes` more readable bytes in one of the partitions; 0: other state has
        changed."""
        self.touched = True
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._ready(self)

    def interrupt(self) -> None:
        """End the wait after another change that the client must learn (leadership, deletion)."""
        self.touched = self.interrupted = True
        self._ready(self)

    def supersede(self) -> None:
        """End the wait because the session's next fetch has arrived, whose answer must not wait
        behind it."""
        self.superseded = True
        self._ready(self)

    def expired(self) -> None:
        self.timed_out = True
        self._ready(self)

    def leave(self) -> None:
        """Unregister the wait from notifications."""
        place, self.place = self.place, None
        if place is not None:
            place.remove_fetch_wait(self)

    def dropped(self) -> None:
        self.over = True
        self.leave()
        self._cancel()
