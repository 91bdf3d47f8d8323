"""New replicas and local logs in the swarm (KIP-1023, KIP-1303): seeds, faults and operators."""

from __future__ import annotations

from functools import cache
from itertools import count, islice
from typing import Any

import pytest

from simulation import command
from simulation.event import Event
from simulation.faults import REPLICAS
from simulation.faults.beginnings import STEPS
from simulation.schedule import Schedule, draw_schedule
from simulation.shapes.replicas import begins_late, looks_at_local_logs
from simulation.shapes.shape import LOCAL_BYTES, LOCAL_MS
from simulation.swarm import RunOutcome, run
from tests.sim.planted.replica_focus import LOCAL_LOGS, NEW_REPLICAS

pytestmark = pytest.mark.sim

LONG = 300

NEW: dict[str, Any] = {"which": 0, "other": 0, "gap_ms": 100, "stays": True}
THRESHOLD: dict[str, Any] = {"key": LOCAL_BYTES, "value": "1", "which": 0, "cluster": True}
THRESHOLD["back"] = True
OWN: dict[str, Any] = {**THRESHOLD, "key": LOCAL_MS, "cluster": False, "back": False}
BESIDE = {"wiped disk": 1, "local log threshold": 2}
WIPED = Event("w", 3_000, "wiped disk", "follower of t0-0", {"for_ms": 300})


def held(schedule: Schedule) -> RunOutcome:
    outcome = run(schedule)
    assert outcome.broken is None, "\n".join(
        command.broken_lines(outcome, f"--seed {schedule.seed} --tiered", outcome.lines)
    )
    return outcome


def played(*events: Event, quiet_ms: int, seed: int = 1) -> RunOutcome:
    return held(Schedule(seed, NEW_REPLICAS.shape(), events, quiet_ms))


def test_half_of_the_tiered_seeds_and_few_others_draw_them() -> None:
    tiered = [draw_schedule(seed, tiered=True).shape for seed in range(100)]
    assert 35 < sum(begins_late(one) for one in tiered) < 65
    assert 20 < sum(looks_at_local_logs(one) for one in tiered) < 60
    others = [draw_schedule(seed, tiered=False).shape for seed in range(200)]
    assert not any(begins_late(one) for one in others)
    assert 8 < sum(looks_at_local_logs(one) for one in others) < 35


def test_a_seed_without_them_has_none_of_their_events() -> None:
    for seed in range(60):
        drawn = draw_schedule(seed, tiered=True)
        asks = begins_late(drawn.shape) or looks_at_local_logs(drawn.shape)
        assert asks or not {event.kind for event in drawn.events} & REPLICAS


QUICK_STEPS = ("epochs", "marker away")


@pytest.mark.parametrize(
    "step", [s if s in QUICK_STEPS else pytest.param(s, marks=pytest.mark.rest) for s in STEPS]
)
@pytest.mark.parametrize("blow", ["kill", pytest.param("power cut", marks=pytest.mark.rest)])
def test_s5_a_log_that_begins_is_struck_at_each_step(step: str, blow: str) -> None:
    args: dict[str, Any] = {"step": step, "after": 0, "back_ms": 300, "for_ms": 3_000}
    struck = Event("s", 2_900, "beginning struck", "a log", {**args, "blow": blow})
    outcome = played(WIPED, struck, quiet_ms=6_000)
    assert outcome.took_effect == {"wiped disk": 1, "beginning struck": 1}
    assert outcome.marks["replication.begins-untiered"] > 1
    # The marker does not exist yet at the first strike.
    assert outcome.marks.get("log.bootstrap-unfinished", 0) == (step != "marker")


@pytest.mark.parametrize(
    ("blow", "seed"), [("store", 1), pytest.param("leader", 1, marks=pytest.mark.rest)]
)
def test_p17_the_leader_or_the_store_is_gone_while_a_log_begins(blow: str, seed: int) -> None:
    args: dict[str, Any] = {"step": "marker", "after": 0, "back_ms": 1_000, "for_ms": 3_000}
    struck = Event("s", 2_900, "beginning struck", "a log", {**args, "blow": blow})
    outcome = played(WIPED, struck, quiet_ms=6_000, seed=seed)
    assert outcome.took_effect == {"wiped disk": 1, "beginning struck": 1}


def test_every_operator_takes_effect() -> None:
    """A replica leaves and returns; thresholds are set; then no replica begins behind the tier."""
    events = (
        Event("n", 2_500, "new replica", "partition", {**NEW, "for_ms": 3_000}),
        Event("t", 500, "local log threshold", "topic 0", {**THRESHOLD, "for_ms": 2_000}),
        Event("u", 600, "local log threshold", "topic 0", {**OWN, "for_ms": 1_000}),
        Event("l", 5_500, "last tiered offset", "all brokers", {"value": "false", "for_ms": 1}),
        Event("w", 5_700, "wiped disk", "follower of t0-0", {"for_ms": 300}),
    )
    outcome = played(*events, quiet_ms=7_000)
    assert outcome.took_effect == {**dict.fromkeys(REPLICAS - {"beginning struck"}, 1), **BESIDE}
    assert outcome.marks["replication.begins-untiered"] == 1


def test_leaders_report_local_logs_of_their_followers() -> None:
    killed = Event("k", 1_000, "kill", "leader of t0-0", {"for_ms": 500})
    outcome = held(Schedule(1, LOCAL_LOGS.shape(), (killed,), 2_000))
    assert outcome.counts["local logs stored"] > 10
    assert outcome.counts["elections by local logs"] > 0


@cache
def seeds() -> list[int]:
    """Return the first 300 tiered seeds with the keys."""
    drawn = (seed for seed in count(1) if begins_late(draw_schedule(seed, tiered=True).shape))
    return list(islice(drawn, LONG))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(LONG))
def test_promises_of_new_replicas_are_kept_for_long(number: int) -> None:
    """S5, P13, P17, L1-L4: the seeds of the soak break no promise."""
    held(draw_schedule(seeds()[number], tiered=True))
