"""A cluster of one node whose records are on disk before they are shown: its power may fail."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation.faults import BY_NAME
from simulation.schedule import draw_schedule
from simulation.shapes.shape import TopicShape
from simulation.swarm import run
from tests.sim.planted.focus import Focus

pytestmark = pytest.mark.sim

FLUSHED = {"flush.messages": "1"}
ALONE = Focus(
    brokers=1,
    combined=True,
    topics=(
        TopicShape("t0", 2, 1, {**FLUSHED, "internal.segment.bytes": "2048"}),
        TopicShape("t1", 1, 1, {**FLUSHED, "segment.ms": "1000"}),
    ),
    settings={
        "log.segment.delete.delay.ms": "500",
        "log.flush.offset.checkpoint.interval.ms": "300",
        "log.flush.start.offset.checkpoint.interval.ms": "300",
        "log.retention.check.interval.ms": "500",
        "metadata.log.max.record.bytes.between.snapshots": "3000",
        "metadata.log.segment.ms": "2000",
        "metadata.max.retention.bytes": "5000",
    },
    sessions=1,
)
FAULTS = (
    "power cut",
    "power cut",
    "kill",
    "crash",
    "interrupted start",
    "interrupted start",
    "interrupted stop",
    "rolling restart",
    "grow topic",
    "segment size",
    "retention",
)


@pytest.mark.parametrize("seed", range(8))
def test_one_node_keeps_every_promise_through_crashes(seed: int) -> None:
    """P4, P11, P18, M14: a crash at any file call of a start, of work, or of a stop loses nothing
    that was shown."""
    outcome = run(ALONE.draw(seed, FAULTS))
    assert outcome.broken is None, outcome.broken
    assert outcome.counts["acked"] > 3


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8, 500))
def test_one_node_keeps_every_promise_in_many_runs(seed: int) -> None:
    """P4, P11, P18, M14, as above."""
    outcome = run(ALONE.draw(seed, FAULTS))
    assert outcome.broken is None, outcome.broken


def test_starts_and_stops_are_interrupted() -> None:
    """A schedule with these faults alone interrupts starts and stops of a node."""
    took: Counter[str] = Counter()
    for seed in range(3):
        took.update(run(ALONE.draw(seed, sorted(BY_NAME))).took_effect)
    assert set(took) == BY_NAME, took


def test_faults_drawn_by_name_are_in_no_other_schedule() -> None:
    """`kraftbox sim` draws them only if `--faults` names them, so that seeds keep their events."""
    drawn = {one.kind for seed in range(60) for one in draw_schedule(seed).events}
    assert not drawn & BY_NAME
    named = {one.kind for one in draw_schedule(1, sorted(BY_NAME)).events}
    assert named == BY_NAME
