"""Tiered storage in the swarm: seeds, faults and operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulation import command
from simulation.event import Event
from simulation.faults.operators.tiering import KINDS as OPERATORS
from simulation.faults.store import EVERYBODY
from simulation.faults.store import KINDS as STORE
from simulation.schedule import Schedule, draw_schedule
from simulation.swarm import RunOutcome, run
from simulation.world.store import worst
from storage.objects import Weather
from testkit.planting import Bug, Patch
from tests.sim.planted.tier_focus import TIER

pytestmark = pytest.mark.sim

SEEDS_IN_CI = range(1, 24)
"""Eight of them with new replicas and local logs, too, which take longer."""


def held(schedule: Schedule, copies: int = 0) -> RunOutcome:
    """Run a schedule in which promises hold. If most nodes are down for long, there may be no
    copies."""
    outcome = run(schedule)
    assert outcome.broken is None, "\n".join(
        command.broken_lines(outcome, f"--seed {schedule.seed} --tiered", outcome.lines)
    )
    assert outcome.counts["copies"] >= copies
    return outcome


def played(*events: Event, quiet_ms: int) -> RunOutcome:
    """Run events in a small cluster."""
    return held(Schedule(1, TIER.shape(), events, quiet_ms), copies=4)


@pytest.mark.rest
@pytest.mark.parametrize("seed", SEEDS_IN_CI)
def test_promises_of_the_tier_are_kept(seed: int) -> None:
    """S1-S6, S9, S10: a drawn schedule with tiered topics breaks no promise."""
    held(draw_schedule(seed, tiered=True))


@pytest.mark.soak
@pytest.mark.parametrize("seed", [*range(500), 701])
def test_promises_of_the_tier_are_kept_for_long(seed: int) -> None:
    """701 has a backlog of copies that takes longer than two minutes."""
    held(draw_schedule(seed, tiered=True))


def test_overlapping_troubles_let_no_call_hang_longer_than_one_of_them() -> None:
    hangs, short = Weather(hang=0.3, hang_ms=1_000.0), Weather(short=0.7)
    both = worst([short, hangs])
    assert (both.hang, both.hang_ms, both.short) == (0.3, 1_000.0, 0.7)
    assert worst([short]).hang == 0.0


def test_one_seed_in_five_has_a_tier_and_the_others_are_unchanged() -> None:
    drawn = [draw_schedule(seed) for seed in range(200)]
    tiered = [one for one in drawn if one.shape.has_tier]
    assert 25 < len(tiered) < 55
    for one in drawn:
        assert one.shape.has_tier or one == draw_schedule(one.seed, tiered=False)
        assert one.shape.has_tier is any(topic.tiered for topic in one.shape.topics)
        common = replace(draw_schedule(one.seed, tiered=True), events=one.events)
        assert common.shape.nodes == one.shape.nodes


def test_every_store_fault_takes_effect() -> None:
    """F33, S9: all of them after one another, each for all nodes."""
    weathers: dict[str, dict[str, Any]] = {
        "store down": {"down": True},
        "store slow": {"latency_ms": [200.0, 500.0]},
        "store errors": {"error": 0.7},
        "store resets": {"error_after_success": 0.7},
        "store short": {"short": 0.9},
        "store flips": {"flipped": 0.9},
        "store hangs": {"hang": 0.9, "hang_ms": 100.0},
    }
    events = [
        Event(f"e{n}", 400 + 700 * n, kind, EVERYBODY, {"weather": weather, "for_ms": 690})
        for n, (kind, weather) in enumerate(weathers.items())
    ]
    outcome = played(*events, quiet_ms=5_400)
    assert outcome.took_effect == dict.fromkeys(STORE, 1)


@pytest.mark.rest
def test_a_call_that_hangs_when_the_store_is_well_again_breaks_nothing() -> None:
    """F33, P26: readers get the late result, and until then the call counts as a fault."""
    args = {"weather": {"hang": 0.9, "hang_ms": 5_000.0}, "for_ms": 1_500}
    hangs = Event("hangs", 1_000, "store hangs", EVERYBODY, args)
    played(hangs, quiet_ms=2_600)


@pytest.mark.rest
def test_every_operator_takes_effect() -> None:
    made = {**TIER.topics[1].configs, "min.insync.replicas": "1"}
    args: dict[str, dict[str, Any]] = {
        "delete records": {"which": 1, "part": 0.8, "for_ms": 1},
        "local retention": {"which": 0, "key": "local.retention.ms", "value": "1", "for_ms": 1},
        "copies off": {"which": 0, "for_ms": 700},
        "tiering off": {"which": 1, "for_ms": 700},
        "tiered again": {
            "which": 1,
            "partitions": 2,
            "factor": 3,
            "configs": made,
            "gap_ms": 100,
            "for_ms": 1,
        },
    }
    events = [
        Event(f"e{n}", 800 + 900 * n, kind, "topic", own)
        for n, (kind, own) in enumerate(args.items())
    ]
    outcome = played(*events, quiet_ms=6_000)
    assert outcome.took_effect == dict.fromkeys(OPERATORS, 1)
    assert outcome.counts["copies deleted"] > 0


def test_s1_records_that_only_the_tier_has_are_read_from_it() -> None:
    """S1: readers start at the beginning, which no disk has, and a broker begins behind the
    tier."""
    wiped = Event("wiped", 1_500, "wiped disk", "broker 2", {"for_ms": 300})
    outcome = played(wiped, quiet_ms=3_000)
    assert outcome.took_effect == {"wiped disk": 1}
    assert outcome.counts["objects read"] > 10


TRANSACTIONS = Event(
    "y0",
    300,
    "transactions",
    "x-1",
    {
        "partitions": 1,
        "factor": 3,
        "configs": {
            "remote.storage.enable": "true",
            "retention.ms": "-1",
            "internal.segment.bytes": "700",
            "local.retention.bytes": "1",
            "min.insync.replicas": "2",
        },
        "steps": 40,
        "for_ms": 3_000,
    },
)


def test_transactions_across_both_tiers_keep_isolation_while_a_leader_fails() -> None:
    """S7, T1: readers get the records of committed transactions alone, from disk and tier."""
    kill = Event("kill", 1_500, "kill", "leader of t0-0", {"for_ms": 1_000})
    outcome = played(TRANSACTIONS, kill, quiet_ms=4_500)
    assert outcome.took_effect == {"kill": 1, "transactions": 1}


ABORTED = "broker.tiering.part_reader:PartReader._aborted"


@pytest.mark.parametrize(
    "patch",
    [
        Patch(ABORTED, "cache.with_aborted(lineage, offset)", "()"),
        Patch(ABORTED, "txn.first_offset < end_offset", "txn.first_offset < offset"),
    ],
    ids=["the disk alone", "earlier transactions alone"],
)
def test_transactions_event_finds_aborted_records_that_a_reader_would_get(patch: Patch) -> None:
    """S7: the judge notices a fetch that does not name an aborted transaction of the tier."""
    bug = Bug("aborted records shown", "tier", "", "S7", (patch,))
    outcome = run(Schedule(1, TIER.shape(), (TRANSACTIONS,), 3_500), planted=(bug.planted,), keep=0)
    assert outcome.broken is not None
    assert outcome.broken.code == "S7"
