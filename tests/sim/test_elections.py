"""Faults and operators of elections (KIP-966): each has its effect, and promises hold.

The only topic has three replicas and min ISR 2: one may lose its unflushed records.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from typing import Any

import pytest

from simulation.event import Event
from simulation.faults import ELECTIONS
from simulation.schedule import draw_schedule
from simulation.shapes.shape import MANAGER, STRATEGY, TIMEOUT, NodeShape
from simulation.swarm import RunOutcome, run
from tests.sim.planted.bugs import BUGS
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

MANAGED: dict[str, Any] = {MANAGER: "true", TIMEOUT: "300"}


def event(kind: str, target: str = "", at_ms: int = 500, name: str = "e", **args: Any) -> Event:
    return Event(name, at_ms, kind, target, {"for_ms": 4000, **args})


def held(*events: Event, **settings: Any) -> RunOutcome:
    outcome = played(*events, **settings)
    assert outcome.broken is None, outcome.broken
    return outcome


def played(
    *events: Event,
    controllers: int = 1,
    quiet_from_ms: int = 6000,
    write_ms: float = 20.0,
    writer: str = "w",
    topics: int = 1,
    **settings: Any,
) -> RunOutcome:
    drawn = schedule(*events, quiet_from_ms=quiet_from_ms, **settings)
    # t1 has min ISR 1: it survives no loss.
    kept = drawn.shape.topics[:topics]
    names = {one.name for one in kept}
    clients = tuple(
        replace(one, name=writer, pause_ms=write_ms) if one.name == "w" else one
        for one in drawn.shape.clients
        if one.args.get("topic", "t0") in names
    )
    more = tuple(NodeShape(5 + n, ("controller",)) for n in range(controllers - 1))
    shape = replace(
        drawn.shape, elr=True, topics=kept, clients=clients, nodes=(*drawn.shape.nodes, *more)
    )
    return run(replace(drawn, shape=shape))


def all_down(at_ms: int = 500, name: str = "all", **args: Any) -> Event:
    drawn = {"down": [2, 3, 4], "up": [2, 3, 4], "spared": [], "kept": []}
    times = {"down_ms": 1, "off_ms": 500, "up_ms": [500, 500, 500], "torn": True}
    return event("all down", "all brokers", at_ms, name, **{**drawn, **times, **args})


def strike(blow: str, **args: Any) -> Event:
    drawn = {"blow": blow, "which": 0, "back_ms": 2000, "late_ms": 300.0, "other": False}
    return event(
        "recovery struck", "a recovery", 300, "strike", **{**drawn, "for_ms": 9000, **args}
    )


@pytest.mark.parametrize("up", [[2, 3, 4], [4, 3, 2]])
def test_all_brokers_end_and_the_longest_log_leads(up: list[int]) -> None:
    outcome = held(all_down(up=up), **MANAGED)
    assert outcome.took_effect == {"all down": 1}
    assert outcome.marks["controller.recovery-elected"]


def test_without_the_manager_the_last_known_leader_leads() -> None:
    """No broker loses records: a kill keeps what was written."""
    outcome = held(all_down(kept=[2, 3, 4]))
    assert outcome.marks["controller.last-known-leader"]


def test_an_eligible_replica_leads() -> None:
    """Both followers leave the ISR, and then the leader is away."""
    apart = [event("cut", f"node {n}", 100, f"cut {n}", **{"from": "brokers"}) for n in (3, 4)]
    off = event("kill", "leader of t0-0", 3000, "off", for_ms=2500)
    outcome = held(*apart, off)
    assert outcome.marks["controller.elr-election"]


def test_strategy_none_leaves_elections_to_an_operator() -> None:
    ask = event("longest log", "a partition", 600, type=3, which=0, for_ms=9000)
    outcome = held(all_down(), ask, quiet_from_ms=12000, **{**MANAGED, STRATEGY: "None"})
    assert outcome.took_effect["longest log"] == 1


def test_the_strategy_changes() -> None:
    set_none = event("strategy", "the cluster", 100, "s", value="None", which=0, back=True)
    outcome = held(set_none, all_down(), quiet_from_ms=9000, **MANAGED)
    assert outcome.took_effect["strategy"] == 1
    assert outcome.marks["controller.recovery-elected"]


def test_topics_without_promises_alone_may_elect_any_replica() -> None:
    """Broker 2 is away: t1 waits for it until the default strategy changes, t0 has its own
    strategy.

    Broker 3 leads t1 at once.
    """
    down = all_down(up=[3, 4, 2], up_ms=[0, 3000, 0], kept=[2, 3, 4], for_ms=6000)
    change = event("strategy of all", "the cluster", 3000, "s", for_ms=4000)
    outcome = held(down, change, topics=2, quiet_from_ms=9000, **MANAGED)
    assert outcome.took_effect["strategy of all"] == 1
    missed = {
        one.partition
        for one in outcome.history
        if one.what == "send" and one.answer == "ok" and 2.5 < one.begin_s < 4.0
    }
    assert missed == {"t1-0"}


@pytest.mark.parametrize(("before", "value"), [("6000", "0"), ("2000", "6000")])
def test_a_recovery_that_runs_waits_for_as_long_as_is_configured_now(
    before: str, value: str
) -> None:
    """Broker 3 has left the ISR, need not answer, and is cut off for 3.4 s when 2 and 4 return.

    The recovery waits for it with the longer timeout, and not with the shorter one.
    """
    settings = {
        **MANAGED,
        TIMEOUT: before,
        "broker.session.timeout.ms": "6000",
        "kraftbox.broker.connection.loss.fence.ms": "100",
    }
    outcome = held(
        event("cut", "node 3", 100, "left behind", **{"from": "brokers", "for_ms": 6500}),
        all_down(2500, down=[2, 4], up=[2, 4], up_ms=[200, 200], kept=[2, 4], down_ms=0),
        event("cut", "node 1", 2700, "silent", **{"from": "node 3", "for_ms": 3900}),
        event("patience", "the cluster", 4000, "p", value=value, back=False),
        quiet_from_ms=9000,
        **settings,
    )
    assert outcome.took_effect == {"cut": 2, "all down": 1, "patience": 1}
    assert ("controller.recovery-overdue" in outcome.marks) is (value == "0")


def test_the_manager_is_turned_on() -> None:
    on = event("recovery manager", "the cluster", 100, "m", value="true", back=False)
    outcome = held(on, all_down(1500), quiet_from_ms=8000)
    assert outcome.took_effect["recovery manager"] == 1
    assert outcome.marks["controller.recovery-elected"]


def test_the_feature_is_off_for_a_while() -> None:
    off = event("elr level", "the cluster", 100, "off", for_ms=1000)
    kill = event("kill", "leader of t0-0", 500, "kill", for_ms=1500)
    outcome = held(off, kill, all_down(3500), quiet_from_ms=9000, **MANAGED)
    assert outcome.took_effect["elr level"] == 1


def test_the_minimum_is_raised_while_followers_leave() -> None:
    """The leader may not advance the high watermark by the min ISR that it still has.

    The scene `the minimum rises unread` has a leader that does.
    """
    low = event("min isr", "topic 0", 50, "low", which=0, value="1", back=False, cluster=False)
    up = event("raised minimum", "partition 0", 300, "up", which=0, late_ms=200.0)
    outcome = held(low, up, quiet_from_ms=7000)
    assert outcome.took_effect == {"min isr": 1, "raised minimum": 1}


def led_without_a_record() -> RunOutcome:
    """Let broker 4 lead epoch 1 with two records, without an append in it.

    Brokers 2 and 3 have seven records of epoch 0, commit them, and end uncleanly. Then all three
    answer. 4 is partitioned from the others from before the second write on, so it follows no
    leader. The writer's name determines its times: 0.3 s, 1.2 s, and then none for 16 s.
    """
    settings = {
        **MANAGED,
        "replica.lag.time.max.ms": "6000",
        "kraftbox.broker.connection.loss.fence.ms": "100",
    }
    return played(
        event("cut", "node 4", 600, "apart", **{"from": "brokers", "for_ms": 9500}),
        event("kill", "node 2", 1200, "kill", for_ms=2000),
        event("cut", "node 1", 1500, "silent", **{"from": "node 4", "for_ms": 2500}),
        all_down(5000, down=[2, 3], up=[2, 3], up_ms=[500, 500], kept=[2, 3], down_ms=0),
        quiet_from_ms=11000,
        writer="writer 269",
        write_ms=3000.0,
        **settings,
    )


@pytest.mark.rest
def test_epoch_without_a_record_wins_no_recovery() -> None:
    """P21: the answer is about the last batch, and a follower has no epoch without one any more.

    Only without both rules does the shorter log win.
    """
    bug = BUGS["epoch cache for the last batch"]
    for one in bug.patches:
        with replace(bug, patches=(one,)).planted():
            outcome = led_without_a_record()
        assert outcome.broken is None, outcome.broken
        assert outcome.marks["controller.recovery-elected"]
    with bug.planted():
        broken = led_without_a_record().broken
    assert broken is not None and broken.code == "P21", broken


@pytest.mark.rest
@pytest.mark.parametrize(
    ("blow", "mark"),
    [
        # Its port opens after its registration, so an answer of another life cannot come here.
        ("restart", "gone-back"),
        ("kill", "gone-back"),
        ("power cut", "elected"),
        ("pause", "overdue"),
        ("controller", "elected"),
    ],
)
def test_a_recovery_is_struck(blow: str, mark: str) -> None:
    outcome = held(all_down(kept=[2, 3, 4]), strike(blow), quiet_from_ms=12000, **MANAGED)
    assert outcome.took_effect["recovery struck"] == 1
    assert outcome.marks.get(f"controller.recovery-{mark}"), outcome.marks


def test_cut_off_controller_learns_that_it_is_behind() -> None:
    outcome = held(
        all_down(kept=[2, 3, 4]),
        strike("cut off controller", for_ms=15000),
        controllers=3,
        quiet_from_ms=20000,
        **MANAGED,
    )
    assert outcome.took_effect["recovery struck"] == 1
    assert outcome.marks.get("controller.recovery-behind"), outcome.marks


def test_controller_is_cut_off_as_it_requests_logs() -> None:
    """All brokers are down at the same time."""
    struck = {"blow": "cut off controller", "which": 0, "back_ms": 2000, "late_ms": 300.0}
    down = all_down(kept=[2, 3, 4]).args
    outcome = held(
        event("controller behind", "all brokers", **{**down, **struck, "for_ms": 15000}),
        controllers=3,
        quiet_from_ms=20000,
        **MANAGED,
    )
    assert outcome.took_effect["controller behind"] == 1


def test_every_kind_is_tried_here() -> None:
    """A new kind needs a schedule of its own in this file."""
    text = inspect.getsource(sys.modules[__name__]).replace("(\n        ", "(")
    assert [name for name in ELECTIONS if f'event("{name}"' not in text] == []


@pytest.mark.rest
def test_seed_has_a_controller_that_learns_that_it_is_behind() -> None:
    """Of the first 60 seeds of this kind alone, this one and 56 do so."""
    outcome = run(draw_schedule(43, ["controller behind"]))
    assert outcome.broken is None, outcome.broken
    assert outcome.marks.get("controller.recovery-behind"), outcome.marks
