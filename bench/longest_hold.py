"""The longest hold of a node's event loop by one request, for each API with a list.

A node in memory gets requests with 100,000 unknown names each, as its listeners would hand them
over behind the decoder. A hold is the processor time of one iteration of the loop, so a busy
machine changes little. Collections of garbage, which the decoded request brings with its objects,
stand in a column of their own.

    python -m bench.longest_hold [--count 100000] [--only FETCH]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from typing import Any

from kraftbox.node import Node
from protocol.transport.dispatch import HandlerTable
from runtime.collector import Collector
from testkit.long_requests import all_long_lists, serve
from testkit.memory.broker import Peer
from testkit.memory.node import running_node

COUNT = 100_000
PATIENCE_S = 120.0


class TimedLoop(asyncio.SelectorEventLoop):
    """Measures each iteration without collections of garbage, and these by themselves;
    `longest_ms` and `collected_ms` are the longest since `reset`."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_ms = self.collected_ms = 0.0
        self._collecting_ms = self._began_ms = 0.0
        gc.callbacks.append(self._collection)

    def _collection(self, phase: str, _: object) -> None:
        now_ms = time.thread_time() * 1000.0
        if phase == "start":
            self._began_ms = now_ms
            return
        took_ms = now_ms - self._began_ms
        self._collecting_ms += took_ms
        self.collected_ms = max(self.collected_ms, took_ms)

    def reset(self) -> None:
        """Measure from scratch, without the current iteration."""
        self.call_soon(self._clear)

    def _clear(self) -> None:
        self.longest_ms = self.collected_ms = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        self._collecting_ms = 0.0
        super()._run_once()  # type: ignore[misc]
        took_ms = (time.thread_time() - began) * 1000.0 - self._collecting_ms
        self.longest_ms = max(self.longest_ms, took_ms)


def tables(node: Node) -> dict[str, HandlerTable]:
    """The APIs of both roles of a node."""
    assert node.broker is not None and node.controller is not None
    return {"broker": node.broker._table, "controller": node.controller.handlers}


async def measure(count: int, only: str) -> None:
    """Print a row of a table for each list of each API."""
    loop: Any = asyncio.get_running_loop()
    print(
        f"| list of {count} | role | longest hold, ms | longest collection, ms | answered, s "
        "| answer, bytes |"
    )
    print("|---|---|---|---|---|---|")
    collector = Collector()
    collector.start()
    async with running_node() as node:
        collector.settle()
        for role, table in tables(node).items():
            for each in all_long_lists(table):
                shape, version = str(each), each.version
                if only not in shape:
                    continue
                request = each.request(count)
                loop.reset()
                await asyncio.sleep(0.05)
                loop.reset()
                await asyncio.sleep(0)
                began = time.monotonic()
                serving = serve(table, request, version, Peer(), began * 1000.0)
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        answer = await asyncio.ensure_future(serving)
                    size = "refused" if answer is None else str(answer[0])
                except TimeoutError:
                    size = "none"
                passed = time.monotonic() - began
                await asyncio.sleep(0)
                holds = f"{loop.longest_ms:.1f} | {loop.collected_ms:.1f}"
                print(f"| {shape} | {role} | {holds} | {passed:.2f} | {size} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="number of elements of each list")
    parser.add_argument("--only", default="", help="only shapes whose names contain this")
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        runner.run(measure(arguments.count, arguments.only))


if __name__ == "__main__":
    main()
