"""No API blocks the event loop while it serves a request with a long list.

Work is measured as function calls per event-loop iteration, which are the same on every machine.
The node has shorter slices than in operation, so that shorter lists suffice: a list that is served
without a pause takes a dozen or more calls for each element. For an API that serves a request as a
whole, the list is as long as the API allows. `bench.longest_hold` measures milliseconds, with lists
of 100,000 elements.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from protocol.api_keys import ApiKey
from protocol.schema import Request
from protocol.transport.dispatch import HandlerTable
from protocol.transport.long_requests import AtOnce
from protocol.weights import weigh
from runtime.slices import SharedSlices, Slices
from serving.long_lists import RULES
from testkit.long_requests import CallCountingLoop, LongList, all_long_lists, serve
from testkit.memory.broker import Peer
from testkit.memory.node import running_node

STEPS_PER_SLICE = 100
COUNT = 3_000
COUNT_COSTLY = 400
COSTLY = {ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS}
"""An element takes hundreds of calls and more, so few of them exceed the limit."""
CALLS_MAX = 30_000
"""Of one iteration: a part of a hundred topics that a controller refuses to create takes most."""
CALLS_MAX_AT_ONCE = 60_000
"""Of one iteration with a list of an API that serves a request whole: a call per element."""


def longest_request(each: LongList) -> Request[Any]:
    """Return a request that is served in parts, or the largest one that is served whole."""
    rule = RULES.get(each.api)
    if not isinstance(rule, AtOnce) or rule.by_count:
        return each.request(COUNT_COSTLY if each.api in COSTLY else COUNT)
    per_element = weigh(each.request(100), 1_000) / 100
    return each.request(int(rule.weight_max / max(per_element, 1.0)) - 2)


async def holds(table: HandlerTable) -> dict[str, int]:
    """The most calls in one iteration, for each list of each API of a role."""
    loop: Any = asyncio.get_running_loop()
    found: dict[str, int] = {}
    for each in all_long_lists(table):
        request = longest_request(each)
        await asyncio.sleep(0)
        loop.reset()
        stop = loop.count()
        try:
            await asyncio.ensure_future(
                serve(table, request, each.version, Peer(), time.monotonic() * 1000.0)
            )
            await asyncio.sleep(0)
        finally:
            stop()
        found[str(each)] = loop.longest
    return found


async def holds_of_a_node() -> dict[str, dict[str, int]]:
    async with running_node() as node:
        assert node.broker is not None and node.controller is not None
        return {
            "broker": await holds(node.broker._table),
            "controller": await holds(node.controller.handlers),
        }


@pytest.mark.rest
@pytest.mark.slow
def test_request_with_a_long_list_holds_the_loop_for_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for slices in (Slices, SharedSlices):
        monkeypatch.setattr(slices.__init__, "__defaults__", (STEPS_PER_SLICE,))
    with asyncio.Runner(loop_factory=CallCountingLoop) as runner:
        found = runner.run(holds_of_a_node())
    for role, calls_of in found.items():
        assert len(calls_of) > 50, role
        at_once = {str(api.name) for api, rule in RULES.items() if isinstance(rule, AtOnce)}
        too_long = {
            shape: calls
            for shape, calls in calls_of.items()
            if calls > (CALLS_MAX_AT_ONCE if shape.split()[0] in at_once else CALLS_MAX)
        }
        assert too_long == {}, role
