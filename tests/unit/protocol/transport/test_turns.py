"""The time budget of one event-loop iteration: many connections are served in several, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.transport import turns
from protocol.transport.dispatch import RequestContext
from protocol.transport.server import Server
from protocol.transport.turns import CROWD, TURN_BYTES, TURN_MS, Turns
from runtime.clock import Clock, ManualClock
from testkit.memory.sockets import (
    Echo,
    RawClient,
    correlation_id_of,
    heartbeat,
    metadata,
    on_both_loops,
    raw_client,
    serving,
)
from testkit.memory.turns import until


class Loop:
    """Iterations by hand; each connection served uses some of the time."""

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


def test_connections_over_the_iteration_budget_are_served_in_order_later() -> None:
    loop = Loop(each_ms=TURN_MS / 2)
    for number in range(7):
        loop.arrive(number)
    assert loop.served == [0, 1]
    loop.turn()
    assert loop.served == [0, 1, 2, 3]
    loop.arrive(7)  # behind the waiting connections
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


def test_a_turn_is_over_when_it_has_enough_to_write() -> None:
    """Replies of waiting requests count, too: a request that arrives then is served in the next
    iteration."""
    loop = Loop(each_ms=0.0)
    loop.turns.sent(TURN_BYTES - 1)
    loop.arrive(0)
    loop.turns.sent(1)
    loop.arrive(1)
    assert loop.served == [0]
    loop.turns.wait(lambda: loop.turns.sent(TURN_BYTES))
    loop.turns.wait(lambda: loop.arrive(2))
    loop.turn()
    assert loop.served == [0, 1]
    loop.turn()
    assert loop.served == [0, 1, 2]


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


class Turned:
    """A counter of event-loop iterations while it is entered."""

    def __init__(self) -> None:
        self.turns = 0
        self.seen: set[int] = set()
        """Iterations in which an event was noted."""
        self._over = False

    def note(self) -> None:
        self.seen.add(self.turns)

    def __enter__(self) -> Turned:
        self._count()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True

    def _count(self) -> None:
        self.turns += 1
        if not self._over:
            asyncio.get_running_loop().call_soon(self._count)


@asynccontextmanager
async def crowd(
    count: int, handler: Echo, clock: Clock
) -> AsyncIterator[tuple[Server, list[RawClient]]]:
    """Connect `count` clients to one server."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(handler.table(), clock=clock))
        clients = [await stack.enter_async_context(raw_client(server)) for _ in range(count)]
        await until(lambda: server.connection_stats.open == count)
        yield server, clients


class Slow(Echo):
    """A slow handler that notes the iteration in which it runs."""

    def __init__(self, turned: Turned, clock: ManualClock, each_ms: int) -> None:
        super().__init__()
        self.turned = turned
        self.clock = clock
        self.each_ms = each_ms

    def metadata(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        self.clock.advance(self.each_ms)
        self.turned.note()
        return super().metadata(context, request)


async def ask_all(clients: list[RawClient]) -> None:
    for number, client in enumerate(clients):
        client.writer.write(metadata(number))
    got = [correlation_id_of(await client.response()) for client in clients]
    assert got == list(range(len(clients)))


@on_both_loops
async def test_a_crowd_is_answered_while_other_things_go_on() -> None:
    """Each request uses the whole time budget: other callbacks run in between."""
    clock, turned = ManualClock(), Turned()
    async with crowd(CROWD + 1, Slow(turned, clock, int(TURN_MS)), clock) as (server, clients):
        with turned:
            await ask_all(clients)
    assert len(turned.seen) > CROWD // 2
    queued = server.handlers.entries[ApiKey.METADATA].stats.request_queue
    assert sum(queued) > CROWD // 2, "a wait for a turn is time in the queue of requests"


@on_both_loops
async def test_a_crowd_is_written_to_while_other_things_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each answer uses the whole byte budget of an iteration."""
    monkeypatch.setattr(turns, "TURN_BYTES", 8)
    clock, turned = ManualClock(), Turned()
    async with crowd(CROWD + 1, Slow(turned, clock, 0), clock) as (_, clients):
        with turned:
            await ask_all(clients)
    assert len(turned.seen) > CROWD // 2


@on_both_loops
async def test_a_crowd_that_waited_is_written_to_while_other_things_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One event releases all of them, as a part from the tier does.

    Each answer uses the whole byte budget of an iteration.
    """
    monkeypatch.setattr(turns, "TURN_BYTES", 8)
    echo, turned, count = Echo(), Turned(), CROWD + 1
    send = Turns.sent

    def sending(of: Turns, size_bytes: int) -> None:
        turned.note()
        send(of, size_bytes)

    monkeypatch.setattr(Turns, "sent", sending)
    async with crowd(count, echo, ManualClock()) as (_, clients):
        for number, client in enumerate(clients):
            client.writer.write(heartbeat(str(number), number))
        await echo.until(lambda: len(echo.waiting) == count)
        with turned:
            for number in range(count):
                echo.release(str(number))
            got = [correlation_id_of(await client.response()) for client in clients]
        assert got == list(range(count))
    assert len(turned.seen) > CROWD // 2


@on_both_loops
async def test_a_crowd_that_hangs_up_is_forgotten_while_other_things_go_on() -> None:
    """Each close callback uses the whole time budget, and no request is answered in between."""
    clock, turned = ManualClock(), Turned()
    async with crowd(2 * CROWD, Echo(), clock) as (server, clients):

        def forgotten() -> None:
            clock.advance(int(TURN_MS))
            turned.note()

        for connection in server.connections:
            connection.add_close_callback(forgotten)
        with turned:
            for client in clients:
                client.writer.transport.abort()
            await until(lambda: not server.connection_stats.open)
        assert not list(server.connections)
    assert len(turned.seen) > CROWD // 2
