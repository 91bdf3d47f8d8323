"""Operations that wait for a commit, or for this node to become active."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.writer.pending import EarlyOperations, PendingBatches, Waiter
from protocol.errors import ApiError, ErrorCode

LOST = ApiError(ErrorCode.NOT_CONTROLLER, "lost")


def future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


async def test_commit_answers_operations_up_to_its_offset() -> None:
    """M18: an operation is answered once its own records are committed."""
    pending = PendingBatches()
    first, second = future(), future()
    pending.add(4).waiters.append(Waiter(first, lambda: "first", None))
    pending.add(9).waiters.append(Waiter(second, lambda: "second", None))
    pending.commit(3)
    assert not first.done()
    pending.commit(8)
    assert first.result() == "first" and not second.done()
    pending.commit(9)
    assert second.result() == "second" and pending.newest is None


async def test_commit_leaves_operations_whose_callers_are_gone() -> None:
    pending = PendingBatches()
    gone = future()
    pending.add(1).waiters.append(Waiter(gone, lambda: pytest.fail("computed"), None))
    gone.cancel()
    pending.commit(1)
    assert len(pending) == 0


async def test_removed_batches_fail_as_their_operations_want() -> None:
    pending = PendingBatches()
    raising, answering = future(), future()
    batch = pending.add(1)
    batch.waiters.append(Waiter(raising, lambda: None, None))
    batch.waiters.append(Waiter(answering, lambda: None, lambda error: error.code))
    for removed in pending.remove_all():
        removed.fail(LOST)
    assert raising.exception() is LOST
    assert answering.result() is ErrorCode.NOT_CONTROLLER
    assert len(pending) == 0


async def test_early_operations_are_submitted_unless_their_callers_are_gone() -> None:
    early = EarlyOperations()
    waiting, gone, refused = future(), future(), future()
    submitted = future()
    early.add(waiting, lambda: submitted, None)
    early.add(gone, lambda: pytest.fail("submitted"), None)

    def refuse() -> asyncio.Future[Any]:
        raise LOST

    early.add(refused, refuse, None)
    gone.cancel()
    early.submit_all()
    submitted.set_result(7)
    await asyncio.sleep(0)
    assert waiting.result() == 7
    assert refused.exception() is LOST
    assert len(early) == 0
