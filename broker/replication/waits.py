"""Waits of the purgatory: for commits and for bytes.

A wait is a small object that partitions call: `resolved` when an appended batch is committed (or
never will be), `more_bytes` when something became readable. It answers through a callable that
its request gave it, so this module knows nothing of futures or responses. A wait whose connection
is gone calls `cancel` instead: a task that awaits its answer must end, too.

What is called is handed the wait, so that it need not hold it: a request and its wait that hold
each other would keep what was read until the collector comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker.replication.purgatory import Wait
from protocol.errors import ErrorCode

NONE = ErrorCode.NONE


def _nobody_awaits() -> None:
    return


class CommitWaiter(Protocol):
    """Whoever appended with acks=all."""

    def resolved(self, slot: Any, error: ErrorCode) -> None:
        """The batch registered with `slot` is committed, or cannot be any more."""


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
        """`mark(slot, error)` writes an error into a slot, `answer(wait)` sends the
        response, `cancel()` says that there will be none."""
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
        """Whatever is not committed in time is answered REQUEST_TIMED_OUT; it may still commit."""
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
    """Whoever tells a fetch that waits."""

    def remove_fetch_wait(self, wait: FetchWait, /) -> None:
        """It waits no longer."""


class FetchWait(Wait):
    """A fetch that found too little. Counting bytes is a hint: the read when it ends decides.

    `place` is whoever hears from its partitions.
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
        self.touched = False  # something happened in one of the partitions
        self.interrupted = False  # something else than bytes happened
        self.superseded = False  # the session's next fetch is here: this one has had its time
        self.over = False  # the connection is gone

    def more_bytes(self, size_bytes: int) -> None:
        """`size_bytes` more became readable in one of the partitions; 0: other facts changed."""
        self.touched = True
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._ready(self)

    def interrupt(self) -> None:
        """Something else happened that the client must hear of (leadership, deletion)."""
        self.touched = self.interrupted = True
        self._ready(self)

    def supersede(self) -> None:
        """The session's next fetch has come: its answer must not wait behind this one's."""
        self.superseded = True
        self._ready(self)

    def expired(self) -> None:
        self.timed_out = True
        self._ready(self)

    def leave(self) -> None:
        """Nobody is to tell it anything any more."""
        place, self.place = self.place, None
        if place is not None:
            place.remove_fetch_wait(self)

    def dropped(self) -> None:
        self.over = True
        self.leave()
        self._cancel()
