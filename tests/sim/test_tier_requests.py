"""Requests of a broker's tier as stopping points: a broker, its leader or a log start changes."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.event import Event
from simulation.schedule import Schedule
from simulation.swarm import run
from tests.sim.planted.tier_focus import TIER


def schedule(**args: Any) -> Schedule:
    given = {"after": 3, "for_ms": 1_500, **args}
    event = Event("j0", 900, "tier request struck", "a request of the tier", given)
    return Schedule(1, TIER.shape(), (event,), 3_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_name", "blow", "answered"),
    [
        ("append", "kill", True),
        ("append", "leader", True),
        ("append", "log start", False),
        ("read", "power cut", False),
        ("read", "cut", False),
        ("read", "pause", True),
    ],
)
def test_cluster_keeps_its_promises_when_a_request_of_the_journal_is_struck(
    request_name: str, blow: str, answered: bool
) -> None:
    """S1-S9: metadata that was read or written before is old when the broker goes on."""
    outcome = run(schedule(request=request_name, blow=blow, answered=answered), keep=0)
    assert outcome.broken is None
    assert outcome.took_effect == {"tier request struck": 1}
