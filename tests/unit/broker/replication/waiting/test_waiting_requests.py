"""The purgatory on an event loop: a wait ends with its own connection only."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from broker.replication.waiting.purgatory import Wait
from broker.replication.waiting.waiting_requests import WaitingRequests
from broker.replication.waiting.waits import DeleteRecordsWait, FetchWait, ProduceWait
from protocol.transport.turns import TURN_MS
from runtime.clock import ManualClock
from testkit.memory.broker import Peer

FOR_EVER_MS = 2**31 - 1


def _waits(cancelled: list[str]) -> list[ProduceWait | FetchWait]:
    def cancel() -> None:
        cancelled.append("cancelled")

    return [
        ProduceWait(lambda slot, error: None, lambda wait: None, cancel),
        DeleteRecordsWait(lambda slot, error: None, lambda wait: None, cancel),
        FetchWait(1, lambda wait: None, cancel),
    ]


@pytest.mark.parametrize("kind", range(3))
async def test_a_wait_that_begins_after_its_connection_has_gone_ends_at_once(kind: int) -> None:
    cancelled: list[str] = []
    waits = WaitingRequests(ManualClock())
    peer = Peer(7)
    peer.close("gone")
    for count in (1, 2):
        wait = _waits(cancelled)[kind]
        waits.hold(wait, FOR_EVER_MS, peer)
        assert not wait.waiting
        assert cancelled == ["cancelled"] * count
    assert (len(waits.purgatory), waits.purgatory.next_deadline_ms()) == (0, None)
    assert not waits._peers, "nobody would take it out again"


@pytest.mark.parametrize("kind", range(3))
async def test_a_wait_ends_with_its_connection_and_is_cancelled(kind: int) -> None:
    cancelled: list[str] = []
    waits = WaitingRequests(ManualClock())
    peer, other = Peer(7), Peer(8)
    mine, others = _waits(cancelled)[kind], _waits(cancelled)[kind]
    waits.hold(mine, FOR_EVER_MS, peer)
    waits.hold(others, FOR_EVER_MS, other)
    peer.close("gone")
    assert (mine.waiting, others.waiting) == (False, True)
    assert cancelled == ["cancelled"]
    assert len(peer.callbacks) == 0
    waits.close()


class Expiring(Wait):
    def __init__(self, ended: list[str], name: str, *, fails: bool = False) -> None:
        super().__init__()
        self.ended = ended
        self.name = name
        self.fails = fails

    def expired(self) -> None:
        if self.fails:
            raise KeyError(self.name)
        self.ended.append(self.name)


async def test_after_a_deadline_that_failed_the_next_one_still_rings() -> None:
    clock, ended = ManualClock(), []
    waits = WaitingRequests(clock)
    waits.hold(Expiring(ended, "broken", fails=True), clock.monotonic_ms() + 10, None)
    waits.hold(Expiring(ended, "later"), clock.monotonic_ms() + 500, None)
    clock.advance(20)
    with pytest.raises(KeyError):
        waits._fire()
    assert waits._timer is not None
    clock.advance(500)
    waits._fire()
    assert ended == ["later"]
    waits.close()


async def test_waiting_requests_finish_others_after_one_fails() -> None:
    waits = WaitingRequests(ManualClock())
    finished: list[int] = []
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def fail() -> None:
        raise KeyError(1)

    for finish in (lambda: finished.append(1), fail, lambda: finished.append(2)):
        waits.soon(finish)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert finished == [1, 2] and len(told) == 1


async def test_waiting_requests_that_are_ready_finish_within_the_iteration_budget() -> None:
    """Each iteration uses half of its budget; waits that are ready later come behind."""
    clock, finished = ManualClock(), []
    waits = WaitingRequests(clock)

    def finish(number: int) -> None:
        clock.advance(int(TURN_MS / 2) + 1)
        finished.append(number)
        if number == 0:
            waits.soon(lambda: finish(5))

    for number in range(5):
        waits.soon(partial(finish, number))
    seen = []
    while len(finished) < 6:
        await asyncio.sleep(0)
        seen.append(list(finished))
    assert seen == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
