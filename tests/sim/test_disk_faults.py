"""Each fault of a disk in a cluster: it takes effect as named, and promises hold."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.batch.records import Record, build_batch
from simulation.clients.client import Unknown, checked
from simulation.event import Event
from simulation.faults import KINDS, disk_errors
from simulation.faults.disk_errors import ANY, ROT
from simulation.schedule import Schedule
from simulation.shapes.shape import TopicShape
from simulation.swarm import RunOutcome, run
from simulation.world.disks import SYNCS, WRITES, DiskTrouble
from tests.sim.planted.focus import TOPICS, Focus
from tests.sim.planted.scenes import SCENES
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

ARGS: dict[str, dict[str, Any]] = {
    # First, while broker 2 leads and serves reads.
    "unreadable": {"kinds": ["read"], "path_has": "", "after": 0},
    "slow flush": {"flush_ms": 300.0},
    "hanging flush": {},
    "disk full": {"kinds": list(WRITES), "path_has": "", "after": 3},
    "fsync error": {"kinds": list(SYNCS), "path_has": "", "after": 1, "cut": False},
    "file error": {"kinds": list(ANY), "path_has": "", "after": 7, "most": 1},
}
CLOSE = {"index.interval.bytes": "200"}
"""An index entry for nearly every batch."""
FLIPS = "bit flips"
"""It needs closed segments, as ROT does."""
STOPPING = ("disk full", "fsync error", "file error")
"""A client's failing read stops no node."""


def played(*events: Event, **settings: str) -> RunOutcome:
    quiet_ms = max(event.at_ms + event.for_ms for event in events)
    outcome = run(schedule(*events, quiet_from_ms=quiet_ms, **settings))
    assert outcome.broken is None, outcome.broken
    assert outcome.counts["acked"] > 3
    return outcome


def test_each_fault_takes_effect_and_every_promise_holds() -> None:
    assert {*ARGS, FLIPS, ROT} == {
        name for name, kind in KINDS.items() if kind.family == "disk_errors"
    }
    events = [
        Event(kind, 100 + 2_500 * number, kind, "node 2", {"for_ms": 500, **args})
        for number, (kind, args) in enumerate(ARGS.items())
    ]
    outcome = played(*events, **{"log.flush.interval.messages": "1"})
    assert outcome.took_effect == dict.fromkeys(ARGS, 1)
    assert outcome.counts["boots"] == len(outcome.schedule.shape.nodes) + len(STOPPING)


def test_bits_that_flip_are_noticed_and_the_rest_goes_on() -> None:
    """F20: a follower that was away, and consumers, read flipped bits of a leader's disk."""
    scene = SCENES["bits flip on a leader's disk"].schedule()
    outcome = run(scene)
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {"kill": 1, FLIPS: 1}
    assert any("do not follow the end of the log" in line for line in outcome.logged)


def test_an_index_that_rots_hides_nothing() -> None:
    """P6, P18: readers, followers and truncations use damaged indexes."""
    topics = [replace(one, configs={**one.configs, **CLOSE}) for one in TOPICS]
    focus = Focus(idempotent=0, plain=2, sessions=1, topics=tuple(topics))
    rots = [
        Event(
            f"{node} {at_ms}", at_ms, ROT, f"node {node}", {"topic": "t0", "bits": 32, "for_ms": 1}
        )
        for node in (2, 3, 4)
        for at_ms in (700, 1_500)
    ]
    kill = Event("kill", 1_800, "kill", "leader of t0-0", {"for_ms": 500})
    outcome = run(Schedule(1, focus.shape(), (*rots, kill), 2_500), keep=0)
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {ROT: len(rots), "kill": 1}


def test_a_client_believes_no_damaged_batch() -> None:
    batch = build_batch([Record(timestamp=1, value=b"v")])
    assert [one.value for one in checked(batch)] == [b"v"]
    with pytest.raises(Unknown, match="wrong CRC"):
        checked(bytes(batch).replace(b"v", b"w"))


def test_node_with_a_full_disk_reports_it_and_stops() -> None:
    outcome = played(Event("e", 100, "disk full", "node 2", {"for_ms": 500, **ARGS["disk full"]}))
    told = [line for line in outcome.logged if "The node must stop" in line]
    assert len(told) == 1 and "No space left on device" in told[0]


def test_a_broker_comes_back_on_an_empty_disk_and_gets_all_of_it_again() -> None:
    outcome = played(Event("e", 1_000, "wiped disk", "node 4", {"for_ms": 500}))
    assert outcome.took_effect == {"wiped disk": 1}


def test_operator_restarts_a_partition_whose_only_disk_is_gone() -> None:
    """The topic's records are abandoned: no log is left to compare."""
    drawn = schedule(Event("e", 500, "wiped disk", "leader of t1-0", {"for_ms": 500}))
    one = TopicShape("t1", 1, 1, {"unclean.leader.election.enable": "true"})
    shape = replace(drawn.shape, elr=True, topics=(drawn.shape.topics[0], one))
    outcome = run(replace(drawn, shape=shape, quiet_from_ms=1500))
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {"wiped disk": 1}


@pytest.mark.parametrize("elr", [False, True])
def test_only_disk_of_a_partition_with_promises_is_not_wiped(elr: bool) -> None:
    """The disk flushes before records are visible, so it may lose power; a wiped disk loses all
    records."""
    event = Event("e", 500, "wiped disk", "leader of t1-0", {"for_ms": 500})
    drawn = schedule(event, quiet_from_ms=1500)
    one = TopicShape("t1", 1, 1, {"flush.messages": "1"})
    shape = replace(drawn.shape, elr=elr, topics=(drawn.shape.topics[0], one))
    outcome = run(replace(drawn, shape=shape))
    assert outcome.broken is None, outcome.broken
    assert outcome.took_effect == {}


@pytest.mark.parametrize("raised", [False, True])
def test_swapped_disk_needs_records_with_directories(raised: bool) -> None:
    """Below level 17 no record names a directory (tiered seed 708). Once the level is raised,
    brokers register again and report every replica."""
    level = Event("v", 300, "metadata level", "metadata.version", {"level": 22, "for_ms": 1})
    swap = Event("s", 900, "swapped disk", "leader of t1-0", {"for_ms": 1_500, "off_ms": 800})
    drawn = schedule(*([level] if raised else []), swap, quiet_from_ms=3_000)
    topics = (drawn.shape.topics[0], TopicShape("t1", 1, 1, {}))
    shape = replace(drawn.shape, elr=False, metadata_version=15, topics=topics)
    outcome = run(replace(drawn, shape=shape))
    assert outcome.broken is None, outcome.broken
    expected = {"metadata level": 1, "swapped disk": 1} if raised else {}
    assert outcome.took_effect == expected


def test_partition_on_a_swapped_disk_alone_moves_before_the_old_disk_returns() -> None:
    """The only replica is on a disk that is about to go: without an operator it would wait
    forever."""
    outcome = played(
        Event("s", 300, "swapped disk", "node 2", {"for_ms": 3_000, "off_ms": 100}),
        Event("r", 2_000, "reassign", "partition 1", {"which": 1, "replicas": [2], "for_ms": 1}),
    )
    assert outcome.took_effect == {"swapped disk": 1, "reassign": 1}
    assert outcome.counts["boots"] >= len(outcome.schedule.shape.nodes) + 2


async def test_a_segment_that_the_cleaner_has_emptied_has_no_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 1701: an emptied segment has no bits to flip, so the fault does nothing."""
    monkeypatch.setattr(disk_errors, "may_be_hit", lambda _world, _machine: True)
    empty = SimpleNamespace(size_bytes=0, log=SimpleNamespace(path="0.log", pread=lambda *_: b""))
    log = SimpleNamespace(topic="k0", segments=[empty, empty])
    broker = SimpleNamespace(logs=SimpleNamespace(logs={("k0", 0): log}))
    life = SimpleNamespace(node=SimpleNamespace(broker=broker))
    machine: Any = SimpleNamespace(life=life, disk_troubles=[])
    world: Any = SimpleNamespace(promises=SimpleNamespace(configs=lambda _topic: {}))
    event = Event("b0", 0, FLIPS, "broker 1", {"topic": "k0"})
    assert not await disk_errors._flips(world, machine, event, random.Random(1))
    assert machine.disk_troubles == []


@pytest.mark.parametrize("kind", ["rename", "truncate", "append"])
def test_a_bit_that_flips_is_one_of_the_file_that_is_there(kind: str) -> None:
    """Seed 7780: the cleaner replaced the file, and in the new one that bit was one of an
    offset."""
    trouble = DiskTrouble(flips={"0.log": (1, 4)})
    trouble.strike(kind, "0.log")
    assert trouble.read("0.log", 0, b"abc") == (b"abc" if kind != "append" else b"afc")
