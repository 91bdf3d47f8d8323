"""Sender of queued items to other brokers: requests in flight, failures, deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, cast

import pytest

from broker.peers.peer import Peer
from broker.peers.pool import PeerPool
from broker.peers.queue import Backoff, PeerQueues, QueueLimits
from broker.peers.sender import PeerSender
from protocol.errors import ProtocolError
from runtime.clock import ManualClock
from runtime.errors import InvariantViolated
from runtime.tasks import Supervisor
from testkit.memory.broker import settle

LIMITS = QueueLimits(items=4, size_bytes=100, request_items=3, request_bytes=100)


class Pool:
    """Connections that are named by their broker."""

    def peer(self, broker_id: int, _purpose: str) -> Any:
        return broker_id


class World:
    def __init__(self, backoff: Backoff | None = None) -> None:
        self.clock = ManualClock()
        self.failures: list[str] = []
        self.supervisor = Supervisor(lambda name, _: self.failures.append(name))
        self.requests: list[tuple[int, list[str]]] = []
        self.answers: list[asyncio.Future[Collection[str]]] = []
        self.refused: list[tuple[str, str]] = []
        self.sender = PeerSender(
            cast(PeerPool, Pool()),
            "markers",
            PeerQueues[str](LIMITS, backoff),
            exchange=self.exchange,
            refused=lambda item, error: self.refused.append((item, type(error).__name__)),
            clock=self.clock,
            supervisor=self.supervisor,
        )

    async def exchange(self, peer: Peer, items: Sequence[str]) -> Collection[str]:
        self.requests.append((cast(int, peer), list(items)))
        answer: asyncio.Future[Collection[str]] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    async def add(self, broker_id: int, *items: str) -> None:
        for item in items:
            assert self.sender.add(broker_id, item, 1)
        await settle()

    async def answer(self, again: Collection[str] | Exception = ()) -> None:
        """End the newest request with items to repeat, or with an error."""
        if isinstance(again, Exception):
            self.answers[-1].set_exception(again)
        else:
            self.answers[-1].set_result(again)
        await settle()

    async def close(self) -> None:
        self.sender.close()
        await self.supervisor.close()


async def test_sender_has_one_request_in_flight_per_broker() -> None:
    w = World()
    await w.add(1, "a", "b")
    await w.add(1, "c")
    await w.add(2, "d")
    assert w.requests == [(1, ["a", "b"]), (2, ["d"])]
    w.answers[0].set_result(())
    await settle()
    assert w.requests[2:] == [(1, ["c"])]
    await w.close()


async def test_sender_refuses_items_of_a_full_queue_and_after_its_end() -> None:
    w = World()
    await w.add(1, "a", "b", "c", "d")
    assert not w.sender.add(1, "e", 1)
    await w.close()
    assert not w.sender.add(2, "e", 1)


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), ProtocolError("unreadable")])
async def test_failed_request_without_retry_refuses_its_items(error: Exception) -> None:
    w = World()
    await w.add(1, "a", "b")
    await w.answer(error)
    assert w.refused == [(item, type(error).__name__) for item in "ab"]
    assert w.failures == [] and w.supervisor.survived == {}
    await w.close()


async def test_item_that_is_not_served_without_retry_is_refused() -> None:
    w = World()
    await w.add(1, "a", "b")
    await w.answer(["b"])
    assert w.refused == [("b", "ConnectionError")]
    await w.close()


async def test_unforeseen_error_of_a_response_is_survived_and_retried() -> None:
    """No byte from outside stops a node."""
    w = World(Backoff(1.0, 1.0))
    await w.add(1, "a")
    await w.answer(KeyError(7))
    assert w.failures == [] and w.supervisor.survived == {"markers": 1}
    w.clock.advance(1.0)
    w.sender.registered(9)
    await settle()
    assert w.requests == [(1, ["a"])] * 2
    await w.close()


async def test_broken_invariant_in_a_response_stops_the_node() -> None:
    w = World()
    await w.add(1, "a")
    await w.answer(InvariantViolated("offsets went back"))
    assert w.failures == ["markers"]
    await w.close()


async def test_failed_items_are_sent_again_by_the_timer() -> None:
    w = World(Backoff(1.0, 1.0))
    await w.add(1, "a")
    await w.answer(ConnectionResetError("gone"))
    await w.add(1, "b")
    assert w.requests == [(1, ["a"])]
    w.clock.advance(1.0)
    async with asyncio.timeout(5):
        while len(w.requests) < 2:  # noqa: ASYNC110 - the loop's own timer
            await asyncio.sleep(0)
    assert w.requests[1:] == [(1, ["a", "b"])]
    await w.close()


async def test_new_registration_ends_the_backoff() -> None:
    w = World(Backoff(10_000.0, 10_000.0))
    await w.add(1, "a")
    await w.answer(ConnectionResetError("gone"))
    w.sender.registered(1)
    await settle()
    assert w.requests == [(1, ["a"])] * 2
    await w.close()


async def test_overdue_item_is_refused_while_its_request_is_in_flight() -> None:
    w = World()
    assert w.sender.add(1, "a", 1, w.clock.monotonic_ms() + 5.0)
    await settle()
    w.clock.advance(5.0)
    await w.add(1, "b")
    assert w.refused == [("a", "TimeoutError")]
    await w.answer(["a"])
    assert w.refused == [("a", "TimeoutError")], "its answer is ignored"
    assert w.requests == [(1, ["a"]), (1, ["b"])]
    await w.close()


async def test_withdrawn_item_is_not_sent() -> None:
    w = World()
    await w.add(1, "a")
    await w.add(1, "b")
    assert w.sender.withdraw(1, "b") and not w.sender.withdraw(1, "b")
    await w.answer()
    assert w.requests == [(1, ["a"])]
    await w.close()
