"""Limits of the faults in the swarm: it injects those that the promises survive, and no others.

Without eligible leader replicas a broker that lost records may be the last one that the controllers
fence. So no broker loses records while heartbeats may be missing, and the other way round (P10).
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from simulation.event import Event
from simulation.faults import process
from simulation.swarm import RunOutcome, run
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

CONTROLLER, SESSION_MS = "node 1", 1_500


def event(name: str, at_ms: int, kind: str, target: str, **args: Any) -> Event:
    return Event(name, at_ms, kind, target, args)


def power_cut(name: str, at_ms: int, target: str, for_ms: int = 1) -> Event:
    return event(name, at_ms, "power cut", target, for_ms=for_ms, torn=False, dark=False)


def silent(at_ms: int, for_ms: int) -> Event:
    return event("silent", at_ms, "cut", CONTROLLER, for_ms=for_ms, **{"from": "all"})


def held(*events: Event) -> RunOutcome:
    outcome = run(schedule(*events, quiet_from_ms=5_000))
    assert outcome.broken is None, outcome.broken
    return outcome


def test_records_that_every_replica_loses_are_reported() -> None:
    """P1, P2, P4: a power cut of all brokers takes acknowledged records that none had flushed."""
    cuts = [power_cut(f"cut {n}", 2_000, f"node {n}", 300) for n in (2, 3, 4)]
    with mock.patch.object(process, "may_lose", return_value=True):
        broken = run(schedule(*cuts, quiet_from_ms=5_000)).broken
    assert broken is not None and broken.code in ("P1", "P2", "P4", "P17"), broken


def test_power_of_all_brokers_is_not_cut_at_once() -> None:
    """P1: the same power cuts, of which the swarm allows one."""
    cuts = [power_cut(f"cut {n}", 2_000, f"node {n}", 300) for n in (2, 3, 4)]
    assert held(*cuts).took_effect == {"power cut": 1}


@pytest.mark.parametrize(
    ("after_ms", "allowed"), [(-100, 1), (200, 0), (SESSION_MS - 100, 0), (SESSION_MS + 100, 1)]
)
def test_no_broker_loses_records_while_a_session_may_expire(after_ms: int, allowed: int) -> None:
    """P10: `after_ms` counts from the end of the controller's silence; before, it is not silent."""
    at_ms = 1_000 + (0 if after_ms < 0 else 500) + after_ms
    took = held(silent(1_000, 500), power_cut("off", at_ms, "node 4")).took_effect
    # A broker that has just lost records delays the silence of a controller instead.
    assert took.get("power cut", 0) == allowed


def test_no_controller_goes_silent_while_a_broker_lacks_records() -> None:
    """P10: the controller would fence every broker, and the one that lost records last."""
    took = held(power_cut("off", 500, "node 4", 1_500), silent(1_000, 500)).took_effect
    assert took == {"power cut": 1}
