"""Calls of the object store as stopping points, at which a broker ends or is cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulation.event import Event
from simulation.schedule import Schedule
from simulation.shapes.shape import NodeShape
from simulation.swarm import run
from tests.sim.planted.tier_focus import METADATA_ALONE, TIER


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


@pytest.mark.slow
def test_node_without_others_is_not_booted_after_its_links_were_cut() -> None:
    """Seed 95160: a node alone has no links, which the fault mistook for a killed broker."""
    shape = METADATA_ALONE.shape()
    alone = replace(
        shape,
        nodes=(NodeShape(1, ("controller", "broker")),),
        topics=tuple(
            replace(one, replication_factor=1, configs={**one.configs, "min.insync.replicas": "1"})
            for one in shape.topics
        ),
    )
    struck = replace(schedule(call="put", blow="cut"), shape=alone)
    assert run(struck, keep=0).broken is None
