"""Calls of the object store as stopping points, at which a broker ends or is cut off."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.event import Event
from simulation.schedule import Schedule
from simulation.swarm import run
from tests.sim.planted.tier_focus import TIER


def schedule(**args: Any) -> Schedule:
    given = {"after": 3, "answered": True, "for_ms": 1_500, **args}
    event = Event("a0", 900, "store call struck", "a call of the store", given)
    return Schedule(1, TIER.shape(), (event,), 3_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "blow"), [("put", "kill"), ("put", "cut"), ("delete", "kill"), ("head", "power cut")]
)
def test_cluster_keeps_its_promises_when_a_store_call_is_struck(call: str, blow: str) -> None:
    """S1-S9: the next leader completes the work that was left half done."""
    outcome = run(schedule(call=call, blow=blow), keep=0)
    assert outcome.broken is None
    assert outcome.took_effect == {"store call struck": 1}
