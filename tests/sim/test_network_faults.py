"""Each fault of the network in a cluster: it takes effect as named, and promises hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulation.event import Event
from simulation.faults import KINDS
from simulation.schedule import draw_schedule
from simulation.swarm import run

pytestmark = pytest.mark.sim

QUICK = 7
"""A seed whose run is short."""
ARGS: dict[str, dict[str, Any]] = {
    "late": {"late_ms": 100.0},
    "slow link": {"bytes_per_s": 2_000.0},
    "full buffers": {"window_bytes": 0, "bytes_per_s": 20_000.0},
    "pieces": {"pieces_max": 12},
    "reset": {"reset_chance": 0.2},
    "half-open": {"here": True},
    "stalled": {"here": True, "gives_up_ms": 100},
    "cut": {},
    "cut in": {},
    "cut out": {},
}


def test_each_fault_takes_effect_and_every_promise_holds() -> None:
    assert set(ARGS) == {name for name, kind in KINDS.items() if kind.family == "network"}
    events = [
        Event(kind, 100 + 500 * number, kind, "node 1", {"for_ms": 400, "from": "all", **args})
        for number, (kind, args) in enumerate(ARGS.items())
    ]
    outcome = run(replace(draw_schedule(QUICK), events=tuple(events), quiet_from_ms=5500))
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == dict.fromkeys(ARGS, 1)
    assert outcome.counts["acked"] > 3
