"""Operators' actions, each with its effect in one small schedule."""

from __future__ import annotations

import asyncio
import inspect
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from client.admin import ResourceType
from metalog.image.values import PartitionImage
from simulation.event import Event
from simulation.faults import ELECTIONS, REPLICAS, TIER
from simulation.faults.operators import KINDS, configs
from simulation.judges import KINDS as JUDGES
from simulation.judges.judge import Judge, JudgeKind
from simulation.judges.world import JudgedWorld
from simulation.schedule import Schedule
from simulation.shapes.shape import LEVELS
from simulation.swarm import RunOutcome, SwarmWorld, run
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim


def event(kind: str, target: str, at_ms: int = 300, name: str = "e", **args: Any) -> Event:
    return Event(name, at_ms, kind, target, args)


def held(*events: Event, **settings: Any) -> RunOutcome:
    return held_in(*events, **settings)[0]


def held_in(*events: Event, **settings: Any) -> tuple[RunOutcome, SwarmWorld]:
    """Run and check a schedule. Returns: its outcome, and the world at its end."""
    return in_world(schedule(*events, **settings))


def in_world(drawn: Schedule) -> tuple[RunOutcome, SwarmWorld]:
    """Run a schedule in which every promise must hold. Returns: its outcome and its world."""
    seen: list[SwarmWorld] = []

    def make(world: JudgedWorld) -> Judge:
        assert isinstance(world, SwarmWorld)
        seen.append(world)
        return Judge()

    with mock.patch.dict(JUDGES, {"spy": JudgeKind("", make)}):
        outcome = run(drawn)
    assert outcome.broken is None, outcome.broken
    return outcome, seen[0]


def image_of(world: SwarmWorld, topic: str) -> PartitionImage:
    return world.promises.metadata.image.topics.by_name[topic].partitions[0]


def answered(outcome: RunOutcome, where: str) -> set[str]:
    return {one.answer for one in outcome.history if one.partition == where}


NEW: dict[str, Any] = {"partitions": 1, "factor": 3, "configs": {"internal.segment.bytes": "2048"}}


def test_the_level_of_metadata_rises_while_the_cluster_runs() -> None:
    """Below level 12 a shrinking ISR begins a leader epoch, below 17 no record has directories."""
    rise = event("metadata level", "metadata.version", 2_500, level=LEVELS.max_level, for_ms=1)
    away = event("kill", "node 3", 300, "away", for_ms=1_000)
    later = event("kill", "node 4", 3_000, "later", for_ms=1_000)
    drawn = schedule(away, rise, later, quiet_from_ms=5_000)
    old = replace(drawn.shape, metadata_version=LEVELS.min_level)
    outcome, world = in_world(replace(drawn, shape=old))
    assert outcome.took_effect == {"kill": 2, "metadata level": 1}
    cluster = world.promises.metadata.image.cluster
    assert all(one.directories for one in cluster.brokers.values()), "registered again"
    for topic in world.promises.metadata.image.topics.by_id.values():
        for one in topic.partitions.values():
            known = [cluster.brokers[replica].directories for replica in one.replicas]
            assert [(each,) for each in one.directories] == known, "and reported"


def test_a_topic_that_is_made_is_written_to() -> None:
    outcome = held(event("create topic", "new", **NEW))
    assert outcome.took_effect == {"create topic": 1}
    assert "ok" in answered(outcome, "new-0")


def test_a_topic_that_is_deleted_is_left_alone() -> None:
    outcome = held(event("delete topic", "topic 1", which=1))
    assert outcome.took_effect == {"delete topic": 1}
    last = max(one.begin_s for one in outcome.history if one.partition == "t1-0")
    assert last < min(one.begin_s for one in outcome.history) + 1.0


def test_the_last_topic_that_keeps_its_promises_stays() -> None:
    both = [event("delete topic", "topic 0", 300 + n, f"e{n}", which=0) for n in range(2)]
    assert held(*both).took_effect == {"delete topic": 1}


def test_only_topics_of_clients_may_waive_promises() -> None:
    """G9: records lost in a coordinator's topic were acknowledged to groups."""
    _, world = held_in()
    assert world.operator.may_give_up("t0")
    assert not world.operator.may_give_up("__consumer_offsets")


def test_a_topic_is_made_again_with_a_log_of_its_own() -> None:
    outcome = held(event("topic again", "topic 0", which=0, gap_ms=0, **NEW))
    assert outcome.took_effect == {"topic again": 1}
    sends = [one for one in outcome.history if (one.partition, one.what) == ("t0-0", "send")]
    firsts = [one for one in sends if (one.answer, one.offset) == ("ok", 0)]
    assert len(firsts) == 2, "both topics begin at offset 0"


def test_a_topic_grows() -> None:
    outcome = held(event("grow topic", "topic 0", which=0))
    assert outcome.took_effect == {"grow topic": 1}
    assert "ok" in answered(outcome, "t0-1")


def elsewhere() -> tuple[int, list[int]]:
    """Return a broker without a replica of t1-0, and the replicas; the same in all runs here."""
    replicas = sorted(image_of(held_in(quiet_from_ms=0)[1], "t1").replicas)
    return ({2, 3, 4} - set(replicas)).pop(), replicas


def test_a_partition_moves() -> None:
    other, _ = elsewhere()
    outcome, world = held_in(event("reassign", "partition 1", which=1, replicas=[other]))
    assert outcome.took_effect == {"reassign": 1}
    moved = image_of(world, "t1")
    assert (moved.leader, moved.replicas, moved.isr) == (other, (other,), (other,))


def test_move_to_a_dead_broker_is_cancelled() -> None:
    other, replicas = elsewhere()
    cut = Event("cut", 100, "cut", f"node {other}", {"for_ms": 2000, "from": "brokers"})
    back = event("cancel reassignment", "partition 1", which=1, replicas=[other], for_ms=500)
    outcome, world = held_in(cut, back)
    assert outcome.took_effect["cancel reassignment"] == 1
    assert sorted(image_of(world, "t1").replicas) == replicas


@pytest.mark.parametrize("cluster", [False, True])
def test_min_isr_goes_up_and_down(cluster: bool) -> None:
    """While one of two replicas is away, a write waits for the configuration."""
    name = "topic 1"
    up = event("min isr", name, which=1, value="2", back=True, for_ms=4000, cluster=cluster)
    off = event("kill", "follower of t1-0", 800, "off", for_ms=4000)
    before = held(off, quiet_from_ms=6000)
    outcome = held(up, off, quiet_from_ms=6000)
    assert outcome.took_effect["min isr"] == 1
    assert "NOT_ENOUGH_REPLICAS" not in answered(before, "t1-0")
    refused = {"NOT_ENOUGH_REPLICAS", "? REQUEST_TIMED_OUT"}
    assert refused & answered(outcome, "t1-0")


def test_segments_roll_and_retention_deletes_them() -> None:
    small = event("segment size", "topic 0", 100, "small", which=0, value="2048", back=False)
    less = event("retention", "topic 0", which=0, key="retention.bytes", value="1", back=False)
    outcome = held(small, less, **{"log.retention.check.interval.ms": "300"})
    assert outcome.took_effect == {"segment size": 1, "retention": 1}
    assert outcome.counts["log start moves"] > 0


def test_a_preferred_leader_leads_again() -> None:
    off = event("kill", "leader of t0-0", 100, "off", for_ms=100)
    back = event("preferred election", "partition 0", 2500, which=0)
    settings = {"auto.leader.rebalance.enable": "false"}
    outcome = held(off, back, quiet_from_ms=3000, **settings)
    assert outcome.took_effect["preferred election"] == 1


def test_an_unclean_election_takes_whom_it_gets() -> None:
    """The follower leaves the ISR, then the leader is away: only an operator can elect a leader."""
    apart = event("kill", "follower of t1-0", 100, "apart", for_ms=2500)
    off = event("kill", "leader of t1-0", 2000, "off", for_ms=4000)
    force = event("unclean election", "topic t1", 4500)
    outcome = held(apart, off, force, quiet_from_ms=7000)
    assert outcome.took_effect["unclean election"] == 1


def test_an_unclean_election_brings_its_moment_about() -> None:
    force = event("unclean election", "topic t1", 200, for_ms=12_000)
    outcome = held(force, quiet_from_ms=13_000)
    assert outcome.took_effect == {"unclean election": 1}
    assert outcome.marks["controller.unclean-election"] == 1


def test_unclean_elections_are_allowed() -> None:
    apart = event("kill", "follower of t1-0", 100, "apart", for_ms=2500)
    off = event("kill", "leader of t1-0", 2000, "off", for_ms=4000)
    allow = event("unclean allowed", "topic t1")
    outcome, world = held_in(apart, off, allow, quiet_from_ms=7000)
    assert outcome.took_effect["unclean allowed"] == 1
    topic = world.promises.metadata.image.topics.by_name["t1"]
    assert len(set(world.promises.partitions[topic.id, 0].elected.values()) - {-1}) == 2


def test_nodes_are_restarted_one_after_the_other() -> None:
    outcome = held(event("rolling restart", "all nodes", nodes=[2, 3, 4, 1], off_ms=100))
    assert outcome.took_effect == {"rolling restart": 1}
    assert outcome.counts["boots"] == 8


def test_a_broker_is_unregistered_and_comes_back() -> None:
    outcome = held(event("unregister", "broker 3", for_ms=1000))
    assert outcome.took_effect == {"unregister": 1}
    assert outcome.counts["boots"] == 5


def test_a_broker_that_lost_power_is_unregistered_and_comes_back() -> None:
    """P11: its registration follows none that the controllers know."""
    lost = event("unregister lost", "broker 3", 1_500, torn=True, for_ms=500)
    outcome = held(lost, quiet_from_ms=3_000)
    assert outcome.took_effect == {"unregister lost": 1}
    assert outcome.counts["boots"] == 5


def test_every_kind_is_tried_here() -> None:
    """A new kind needs a schedule of its own in this file; other files have those of elections and
    tiers."""
    text = inspect.getsource(sys.modules[__name__])
    kinds = [name for name in KINDS if name not in ELECTIONS | REPLICAS | TIER]
    assert [
        name for name in kinds if f'event("{name}"' not in text.replace("(\n        ", "(")
    ] == []


@pytest.mark.parametrize(
    ("flag", "anybody", "place", "wanted"),
    [
        ("true", False, "t", "Balanced"),
        ("false", False, "t", None),
        (None, False, "t", None),
        (None, True, "t", "Balanced"),
        ("true", True, "", None),
    ],
)
async def test_removed_strategy_lets_no_topic_elect_any_replica(
    flag: str | None, anybody: bool, place: str, wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 1737: a strategy of its own hid that the topic allows unclean elections."""
    found: list[Any] = []

    async def set_config(_world: Any, resource: Any, key: str, value: str | None) -> bool:
        found.append((resource, key, value))
        return True

    monkeypatch.setattr(configs, "set_config", set_config)
    own = {} if flag is None else {"unclean.leader.election.enable": flag}
    world: Any = SimpleNamespace(
        operator=SimpleNamespace(rules=asyncio.Lock(), anybody=anybody),
        promises=SimpleNamespace(configs=lambda name: own if name == "t" else {}),
    )
    resource = (ResourceType.TOPIC, place) if place else configs.CLUSTER
    assert await configs.set_strategy(world, resource, None)
    assert found == [(resource, "unclean.recovery.strategy", wanted)]
