"""The longest call from the event loop, found in a sampler's trace."""

from __future__ import annotations

from typing import Any

from bench.stalls import Stall, longest_stall


def trace(*calls: str, tid: int = 1) -> list[dict[str, Any]]:
    """Parse events of `TIME FUNCTION` (it begins) and `TIME` (the innermost ends), in ms."""
    events = []
    for call in calls:
        ms, _, name = call.partition(" ")
        event: dict[str, Any] = {"tid": tid, "ts": float(ms) * 1000, "ph": "B" if name else "E"}
        if name:
            event |= {"name": name, "args": {"filename": f"/there/{name.lower()}.py"}}
        events.append(event)
    return events


def test_the_longest_call_of_the_loop_and_what_it_was_in() -> None:
    events = trace(
        *("0 Main", "0 Runner.run", "10 Short", "14", "20 Long", "20 Brief", "25", "25 Most"),
        *("25 Inner", "40", "41 Other", "59", "60", "60", "90 Short", "94", "900", "900"),
    )
    assert longest_stall(events) == Stall(40.0, ("long.py:Long", "most.py:Most", "other.py:Other"))
    assert str(longest_stall(trace("0 Runner.run", "1 F", "9", "9"))) == "8 ms: f.py:F"


def test_only_the_thread_of_the_loop_counts() -> None:
    worker = trace("0 Thread.run", "0 Flush", "500", "500", tid=2)
    assert longest_stall(worker) is None
    events = sorted([*worker, *trace("0 Runner.run", "3 F", "4", "9")], key=lambda e: e["ts"])
    assert longest_stall(events) == Stall(1.0, ("f.py:F",))
