"""Causes of the longest event-loop stalls.

The product's own series show how long a stall was, not why. A sampler (py-spy, if it is on the
path) watches the processes from outside, 250 times a second and without stopping them. The Python
function that the event loop called stays on the stack as long as the loop is blocked. The cause is
the longest such stay, with the functions in which it spent most of that time. Two calls of the same
function without a sample in between count as one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.profiled import begin_sampling, end_sampling

LOOP = "Runner.run"
"""The innermost function while the event loop, which is not in Python, works or waits."""
RATE_HZ = 250
MAIN_SHARE = 0.5


class Stay(NamedTuple):
    """A function on the stack without a break. `depth` is 1 for a function that the loop called."""

    depth: int
    begin_ms: float
    ms: float
    function: str


class Stall(NamedTuple):
    """The duration of a stall and its functions, from the outermost on."""

    ms: float
    functions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.ms:.0f} ms: {' > '.join(self.functions)}"


@contextmanager
def stalls_of(pids: Mapping[str, int], place: Path) -> Iterator[dict[str, Stall]]:
    """Find the longest stall of each process by name while the body runs; filled after it."""
    found: dict[str, Stall] = {}
    options = ["--format", "chrometrace", "--function", "--idle", "--nonblocking"]
    paths = {name: place / f"turns-{pid}" for name, pid in pids.items()}
    samplers = {
        name: begin_sampling(pid, paths[name], RATE_HZ, options) for name, pid in pids.items()
    }
    try:
        yield found
    finally:
        for name, sampler in samplers.items():
            end_sampling(sampler, paths[name])
            longest = longest_stall(json.loads(paths[name].read_text()))
            if longest is not None:
                found[name] = longest


def longest_stall(events: Sequence[Mapping[str, Any]]) -> Stall | None:
    """Return the longest stall in a trace in Chrome's format; None without events.

    The events are begins and ends of functions, in order.
    """
    stays = list(_stays(events))
    outer = max((stay for stay in stays if stay.depth == 1), key=_length, default=None)
    if outer is None:
        return None
    path = [outer]
    while True:
        inner = max(
            (stay for stay in stays if _is_most_of(stay, path[-1])), key=_length, default=None
        )
        if inner is None:
            return Stall(outer.ms, tuple(stay.function for stay in path))
        path.append(inner)


def _stays(events: Sequence[Mapping[str, Any]]) -> Iterator[Stay]:
    """Yield the stays of the loop's thread, below the loop."""
    stacks: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for event in events:
        stack = stacks[event["tid"]]
        if event["ph"] == "B":
            file = Path(event["args"]["filename"] or "").name
            stack.append((f"{file}:{event['name']}", event["ts"] / 1000))
        elif event["ph"] == "E" and stack:
            function, begin_ms = stack.pop()
            above = [name.partition(":")[2] for name, _ in stack]
            if LOOP in above:
                depth = len(above) - above.index(LOOP)
                yield Stay(depth, begin_ms, event["ts"] / 1000 - begin_ms, function)


def _length(stay: Stay) -> float:
    return stay.ms


def _is_most_of(inner: Stay, outer: Stay) -> bool:
    return (
        inner.depth == outer.depth + 1
        and outer.begin_ms <= inner.begin_ms
        and inner.begin_ms + inner.ms <= outer.begin_ms + outer.ms
        and inner.ms > MAIN_SHARE * outer.ms
    )
