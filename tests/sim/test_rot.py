"""F20: a disk that loses flushed bits: no damaged batch is sent, and no committed record is
lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from metalog.quorum.log import MetadataLogConfig
from simulation.event import Event
from simulation.faults import KINDS
from simulation.faults.rot import BATCH_ROT, METADATA_ROT
from simulation.schedule import Schedule, draw_schedule
from simulation.shapes.shape import NodeShape
from simulation.swarm import RunOutcome, run
from tests.sim.planted.focus import Focus
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim


def rots(kind: str, target: str, at_ms: int, **args: Any) -> Event:
    return Event(f"{target} {at_ms}", at_ms, kind, target, {"for_ms": 2_000, "batches": 8, **args})


def with_a_spoilt_controller() -> RunOutcome:
    """Run with a damaged disk of one of three controllers."""
    rot = rots(METADATA_ROT, "node 1", 1_000, restart="power")
    plain = schedule(rot, quiet_from_ms=3_500)
    nodes = [NodeShape(n, ("controller" if n < 4 else "broker",)) for n in range(1, 7)]
    topics = tuple(replace(one, replicas=()) for one in plain.shape.topics)
    shape = replace(plain.shape, nodes=tuple(nodes), topics=topics, kraft_version=1)
    return run(replace(plain, shape=shape))


def test_a_voter_waits_for_its_disk() -> None:
    """M6, M14: the quorum and the brokers continue in the meantime."""
    outcome = with_a_spoilt_controller()
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {METADATA_ROT: 1}
    nodes = len(outcome.schedule.shape.nodes)
    assert outcome.counts["boots"] == nodes + 2, "the first start was refused"


def test_a_voter_that_forgets_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MetadataLogConfig.storage
    monkeypatch.setattr(MetadataLogConfig, "storage", lambda self, refuse_rot: storage(self))
    broken = with_a_spoilt_controller().broken
    assert broken is not None and broken.code == "M6", broken


@pytest.mark.parametrize(
    ("target", "restart", "replaced"),
    [("leader", "power", False), ("leader", "stop", True), ("follower", "power", True)],
)
def test_a_broker_lives_on_with_batches_that_have_rotted(
    target: str, restart: str, replaced: bool
) -> None:
    """S1, P4, P6, P18: when the broker recovers its log, it fetches the batches from others."""
    args = {"topic": "t0", "restart": restart, "replaced": replaced}
    rot = rots(BATCH_ROT, f"{target} of t0-0", 2_500, **args)
    outcome = run(Schedule(1, Focus(plain=2, sessions=1).shape(), (rot,), 4_500))
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {BATCH_ROT: 1}
    assert outcome.counts["boots"] == len(outcome.schedule.shape.nodes) + 1 + replaced


@pytest.mark.rest
def test_key_reader_distinguishes_a_rotten_batch_from_a_broken_promise() -> None:
    """F20: the magic of a batch is wrong, which its reader mistook for a failure of the run."""
    outcome = run(draw_schedule(29, [BATCH_ROT]))
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect.get(BATCH_ROT), outcome.took_effect


@pytest.mark.rest
def test_seeds_meet_batches_that_have_rotted() -> None:
    """Brokers that may lose nothing, as the only replica in sync, get the fault, too.

    Their damaged batches are read.
    """
    outcomes = [run(draw_schedule(seed, [BATCH_ROT])) for seed in (4, 9)]
    assert [one.broken for one in outcomes] == [None, None]
    assert all(one.took_effect.get(BATCH_ROT, 0) > 1 for one in outcomes)


def test_these_are_all() -> None:
    assert {BATCH_ROT, METADATA_ROT} == {
        name for name, kind in KINDS.items() if kind.family == "rot"
    }
