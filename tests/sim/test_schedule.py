"""Shapes and schedules: drawn ones can be written to a file, read again and run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.faults import BY_NAME
from simulation.faults import KINDS as FAULTS
from simulation.faults.process import LATE_MS_MAX
from simulation.schedule import TROUBLE_MS_MAX, TROUBLE_MS_MIN, Schedule, draw_schedule
from simulation.shapes.shape import KRAFT_LEVEL, NODES_MAX, WEIGHT_MAX, BadShape, LinkShape

pytestmark = pytest.mark.sim

SEEDS = st.integers(0, 2**31)


@given(SEEDS)
@settings(max_examples=200, deadline=None)
def test_a_schedule_survives_json(seed: int) -> None:
    drawn = draw_schedule(seed)
    assert Schedule.from_json(json.loads(json.dumps(drawn.to_json()))) == drawn


@given(SEEDS)
@settings(max_examples=50, deadline=None)
def test_equal_seeds_draw_equal_schedules(seed: int) -> None:
    assert draw_schedule(seed) == draw_schedule(seed)


@given(SEEDS)
@settings(max_examples=200, deadline=None)
def test_drawn_schedule_is_within_bounds(seed: int) -> None:
    drawn = draw_schedule(seed)
    drawn.check()
    shape = drawn.shape
    assert 1 <= len(shape.controllers) <= NODES_MAX
    assert 1 <= len(shape.brokers) <= NODES_MAX
    assert TROUBLE_MS_MIN <= drawn.quiet_from_ms <= TROUBLE_MS_MAX
    assert shape.faults and all(1 <= weight <= WEIGHT_MAX for weight in shape.faults.values())
    for event in drawn.events:
        assert event.kind in shape.faults
        assert event.at_ms >= 0 and event.at_ms + event.for_ms <= drawn.quiet_from_ms
        assert 0 < event.for_ms <= LATE_MS_MAX


def test_many_seeds_draw_every_shape_and_every_fault() -> None:
    drawn = [draw_schedule(seed) for seed in range(400)]
    for role in ("controllers", "brokers"):
        sizes = {len(getattr(one.shape, role)) for one in drawn}
        assert sizes == set(range(1, NODES_MAX + 1))
    layouts = {
        (
            any(n.controls and n.serves for n in one.shape.nodes),
            len({n.roles for n in one.shape.nodes}),
        )
        for one in drawn
    }
    assert {(True, 1), (False, 2), (True, 2), (True, 3)} <= layouts
    assert {event.kind for one in drawn for event in one.events} == set(FAULTS) - BY_NAME
    assert any(one.shape.given_up for one in drawn)
    assert {one.shape.kraft_version for one in drawn} == {0, 1}


def test_faults_can_be_chosen() -> None:
    for seed in range(20):
        assert {event.kind for event in draw_schedule(seed, {"kill"}).events} <= {"kill"}


def test_taking_an_event_out_changes_no_other() -> None:
    drawn = draw_schedule(3)
    fewer = replace(drawn, events=drawn.events[1:])
    assert Schedule.from_json(fewer.to_json()).events == drawn.events[1:]


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"shape": {}},
        {"events": [{"kind": "kill"}]},
        {"events": [{"name": "e", "at_ms": 0, "kind": "luck", "target": "node 1"}]},
        {"quiet_from_ms": TROUBLE_MS_MAX + 1},
    ],
)
def test_invalid_schedule_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadShape):
        Schedule.from_json({**draw_schedule(1).to_json(), **wrong})


def test_a_shape_out_of_bounds_is_refused() -> None:
    shape = draw_schedule(1).shape
    topic = replace(shape.topics[0], replication_factor=len(shape.brokers) + 1)
    for wrong in (
        replace(shape, nodes=()),
        replace(shape, topics=(topic,)),
        replace(shape, link=LinkShape(5.0, 1.0)),
        replace(shape, faults={"kill": 0}),
        replace(shape, kraft_version=2),
        replace(shape, elr=False, kraft_version=1, metadata_version=KRAFT_LEVEL - 1),
    ):
        with pytest.raises(BadShape):
            wrong.check()
