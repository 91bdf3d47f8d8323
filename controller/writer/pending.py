"""Shell: Operations that wait: for the commit of a batch, or for this node to become active.

A waiting operation has the future of its caller. After a refusal the future has `fail(error)`, or
without `fail` the ApiError itself (`settle_error`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from protocol.errors import ApiError


class Waiter(NamedTuple):
    """A future that gets `result()` once its batch is committed."""

    future: asyncio.Future[Any]
    result: Callable[[], Any]
    fail: Callable[[ApiError], Any] | None


@dataclass(slots=True, eq=False)
class PendingBatch:
    """One batch that waits for its commit, with the operations that wait for it."""

    last_offset: int
    waiters: list[Waiter] = field(default_factory=list)

    def fail(self, error: ApiError) -> None:
        """Fail the operations that wait for the batch."""
        for waiter in self.waiters:
            settle_error(waiter.future, waiter.fail, error)


class PendingBatches:
    """The batches that a controller has appended and that are not committed, in log order."""

    def __init__(self) -> None:
        self._batches: deque[PendingBatch] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def newest(self) -> PendingBatch | None:
        """The batch that was appended last; None if all batches are committed."""
        return self._batches[-1] if self._batches else None

    def add(self, last_offset: int) -> PendingBatch:
        """Add a batch that was just appended, by the offset of its last record."""
        batch = PendingBatch(last_offset)
        self._batches.append(batch)
        return batch

    def commit(self, last_offset: int) -> None:
        """Answer the operations whose batches end at or below a committed offset."""
        while self._batches and self._batches[0].last_offset <= last_offset:
            for waiter in self._batches.popleft().waiters:
                if not waiter.future.done():
                    waiter.future.set_result(waiter.result())

    def remove_all(self) -> deque[PendingBatch]:
        """Return all batches, which this node may have lost, and wait for none of them."""
        batches, self._batches = self._batches, deque()
        return batches


class _Early(NamedTuple):
    future: asyncio.Future[Any]
    submit: Callable[[], asyncio.Future[Any]]
    fail: Callable[[ApiError], Any] | None


class EarlyOperations:
    """Operations that arrived after this node's election and before it was active."""

    def __init__(self) -> None:
        self._operations: list[_Early] = []

    def __len__(self) -> int:
        return len(self._operations)

    def add(
        self,
        future: asyncio.Future[Any],
        submit: Callable[[], asyncio.Future[Any]],
        fail: Callable[[ApiError], Any] | None,
    ) -> None:
        """Add an operation; `submit` starts it and may raise ApiError."""
        self._operations.append(_Early(future, submit, fail))

    def submit_all(self) -> None:
        """Start the operations whose callers still wait: this node is active."""
        operations, self._operations = self._operations, []
        for operation in operations:
            _submit(operation)

    def fail_all(self, error: Callable[[], ApiError]) -> None:
        """Fail all operations: this node is no longer elected."""
        operations, self._operations = self._operations, []
        for operation in operations:
            settle_error(operation.future, operation.fail, error())


def _submit(operation: _Early) -> None:
    future = operation.future
    if future.done():
        return
    try:
        submitted = operation.submit()
    except ApiError as error:
        future.set_exception(error)
        return

    def copy(done: asyncio.Future[Any]) -> None:
        # Retrieve the exception in any case; else the event loop reports it as never retrieved.
        error = done.exception()
        if future.done():
            return
        if error is None:
            future.set_result(done.result())
        else:
            future.set_exception(error)

    submitted.add_done_callback(copy)


def settle_error(
    future: asyncio.Future[Any], fail: Callable[[ApiError], Any] | None, error: ApiError
) -> None:
    """End a caller's wait with an error, unless it has ended already."""
    if future.done():
        return
    if fail is not None:
        future.set_result(fail(error))
    else:
        future.set_exception(error)
