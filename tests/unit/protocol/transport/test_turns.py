"""The time of one turn of the loop: a crowd is served in several, in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.transport.dispatch import RequestContext
from protocol.transport.turns import CROWD, TURN_MS, Turns
from runtime.clock import ManualClock
from testkit.memory.sockets import (
    Echo,
    correlation_id_of,
    metadata,
    on_both_loops,
    raw_client,
    serving,
)
from testkit.memory.turns import until


class Loop:
    """Turns by hand; each that is served takes some of the time."""

    def __init__(self, each_ms: float) -> None:
        self.now_ms = 100.0
        self.each_ms = each_ms
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, lambda: self.now_ms)
        self.served: list[int] = []

    def arrive(self, number: int) -> None:
        if self.turns.is_over(self.now_ms):
            self.turns.wait(lambda: self.arrive(number))
        else:
            self.now_ms += self.each_ms
            self.served.append(number)

    def turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for each in soon:
            each()


def test_who_comes_late_is_served_in_the_turns_behind() -> None:
    loop = Loop(each_ms=TURN_MS / 2)
    for number in range(7):
        loop.arrive(number)
    assert loop.served == [0, 1]
    loop.turn()
    assert loop.served == [0, 1, 2, 3]
    loop.arrive(7)  # behind those who wait
    assert loop.served == [0, 1, 2, 3]
    loop.turn()
    loop.turn()
    assert loop.served == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_turn_that_the_waiting_did_not_fill_is_for_newcomers() -> None:
    loop = Loop(each_ms=TURN_MS / 2)
    for number in range(3):
        loop.arrive(number)
    loop.turn()
    loop.arrive(3)
    loop.arrive(4)
    assert loop.served == [0, 1, 2, 3]
    loop.turn()
    assert loop.served == [0, 1, 2, 3, 4]


def test_an_idle_loop_is_not_woken() -> None:
    loop = Loop(each_ms=1.0)
    loop.arrive(0)
    assert len(loop.soon) == 1
    loop.turn()
    assert not loop.soon


def test_one_that_fails_does_not_take_the_others_along() -> None:
    loop = Loop(each_ms=TURN_MS)
    loop.arrive(0)

    def fail() -> None:
        raise ValueError("it fails")

    loop.turns.wait(fail)
    loop.turns.wait(lambda: loop.arrive(2))
    with pytest.raises(ValueError, match="it fails"):
        loop.turn()
    loop.turn()
    assert loop.served == [0, 2]


@on_both_loops
async def test_a_crowd_is_answered_while_other_things_go_on() -> None:
    """Each request takes the whole time of a turn: callbacks of the loop come in between."""
    clock = ManualClock()
    turns = 0
    answered_in: set[int] = set()

    class Slow(Echo):
        def metadata(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            clock.advance(int(TURN_MS))
            answered_in.add(turns)
            return super().metadata(context, request)

    def count() -> None:
        nonlocal turns
        turns += 1
        if turns >= 0:
            asyncio.get_running_loop().call_soon(count)

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(Slow().table(), clock=clock))
        numbers = range(CROWD + 1)
        clients = [await stack.enter_async_context(raw_client(server)) for _ in numbers]
        await until(lambda: server.connection_stats.open == len(numbers))
        count()
        for number, client in zip(numbers, clients, strict=True):
            client.writer.write(metadata(number))
        got = [correlation_id_of(await client.response()) for client in clients]
        turns = -1 << 30
    assert got == list(numbers)
    assert len(answered_in) > CROWD // 2
    queued = server.handlers.entries[ApiKey.METADATA].stats.request_queue
    assert sum(queued) > CROWD // 2, "a wait for a turn is time in the queue of requests"
