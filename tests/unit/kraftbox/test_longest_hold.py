"""No API holds the event loop for all of a list that a client made long.

Work is counted in calls of functions per iteration of the loop, the same on every machine. A slice
ends after a thousand steps, if not before by time, and a step takes some dozens of calls; a list
that is taken whole takes a dozen calls and more for each of its elements. For 100,000 elements
`bench.longest_hold` measures milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from protocol.transport.dispatch import HandlerTable
from testkit.long_requests import CallCountingLoop, all_long_requests, serve
from testkit.memory.broker import Peer
from testkit.memory.node import running_node

COUNT = 100_000
CALLS_MAX = 150_000
"""Of one iteration: a thousand steps of 100 calls, and a copy of each record set of a Produce."""


async def holds(only_role: str) -> dict[str, int]:
    """The most calls in one iteration, for each list of each API of a role."""
    loop: Any = asyncio.get_running_loop()
    found: dict[str, int] = {}
    async with running_node() as node:
        assert node.broker is not None and node.controller is not None
        tables: dict[str, HandlerTable] = {
            "broker": node.broker._table,
            "controller": node.controller.handlers,
        }
        table = tables[only_role]
        for shape, version, request in all_long_requests(table, COUNT):
            await asyncio.sleep(0)
            loop.reset()
            stop = loop.count()
            try:
                await asyncio.ensure_future(
                    serve(table, request, version, Peer(), time.monotonic() * 1000.0)
                )
                await asyncio.sleep(0)
            finally:
                stop()
            found[shape] = loop.longest
    return found


@pytest.mark.rest
@pytest.mark.slow
@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_request_with_100000_names_holds_the_loop_for_a_slice(role: str) -> None:
    with asyncio.Runner(loop_factory=CallCountingLoop) as runner:
        found = runner.run(holds(role))
    assert len(found) > 20
    assert {shape: calls for shape, calls in found.items() if calls > CALLS_MAX} == {}
