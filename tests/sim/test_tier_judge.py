"""The judge of tiered storage: the time from which records below the log start may be missing."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from simulation.judges import tiering
from simulation.judges.tier_truth import (
    COPY_FINISHED,
    COPY_STARTED,
    Copy,
    boundary_after,
    epoch_at,
    hole,
)
from simulation.judges.tiering import TierJudge
from simulation.shapes.shape import TIERED
from simulation.world.invariants import Violation
from storage.log.epochs import EpochEntry

pytestmark = pytest.mark.sim

TOPIC_ID = b"t" * 16


@dataclass(eq=False)
class Replica:
    """The judge's view of a replica."""

    log: Any
    topic: str = "t"
    topic_id: bytes = TOPIC_ID
    index: int = 0
    is_leader: bool = False
    leader_epoch: int = 0


class Watched:
    """Two replicas of a tiered partition without copies, whose disks begin at 10.

    `decided` is the leader epoch that the controllers have committed.
    """

    def __init__(self, *log_starts: int, decided: int = 0) -> None:
        decision = SimpleNamespace(leader_epoch=decided)
        topics = SimpleNamespace(
            by_id={TOPIC_ID: SimpleNamespace(name="t")}, partition=lambda *_key: decision
        )
        promises = SimpleNamespace(
            given_up=(),
            let_go=("t",),
            partitions={},
            metadata=SimpleNamespace(image=SimpleNamespace(topics=topics)),
            configs=lambda _topic: {TIERED: "true"},
        )
        world: Any = SimpleNamespace(
            promises=promises,
            shape=SimpleNamespace(has_tier=False),
            loop=SimpleNamespace(time=lambda: 0.0),
        )
        self.judge = TierJudge(world)
        self.replicas = [_replica(start) for start in log_starts]

    def look(self, which: int, *, leads: bool = False) -> None:
        one = self.replicas[which]
        one.is_leader, one.leader_epoch = leads, int(leads)
        machine = SimpleNamespace(node_id=which)
        life: Any = SimpleNamespace(machine=machine)
        seen: Any = one
        self.judge._look_at_replica(life, seen)


def _replica(start: int) -> Replica:
    log = SimpleNamespace(
        log_start_offset=start,
        local_log_start_offset=10,
        last_stable_offset=20,
        high_watermark=20,
        log_end_offset=20,
        bounds=SimpleNamespace(bootstrapping=False),
        history=SimpleNamespace(lacks_remote_part=False),
        epochs=SimpleNamespace(entries=[EpochEntry(0, start)]),
    )
    return Replica(log)


def test_s1_records_on_no_disk_and_in_no_tier_are_found() -> None:
    with pytest.raises(Violation, match=r"S2: .* no finished copy has 0"):
        Watched(0).look(0)


def test_replica_without_the_newest_leader_may_count_deleted_copies() -> None:
    """Seed 2216: the newest leader may have switched off tiering."""
    Watched(0, decided=2).look(0, leads=True)
    with pytest.raises(Violation, match="S2"):
        Watched(0, decided=1).look(0, leads=True)


def test_a_follower_that_began_later_gives_nothing_up() -> None:
    watched = Watched(10, 0)
    watched.look(0)
    with pytest.raises(Violation, match="S2"):
        watched.look(1)


def test_elected_follower_may_drop_records_below_its_log_start() -> None:
    """This holds also if it is elected with the log start that it had."""
    watched = Watched(10, 0)
    watched.look(0)
    watched.look(0, leads=True)
    watched.look(1)


@pytest.mark.parametrize(("leads", "empty"), [(False, True), (False, False), (True, True)])
def test_follower_that_restarts_its_log_takes_the_leaders_log_start(
    leads: bool, empty: bool
) -> None:
    """S4, seed 1338: its own log start was later, and its disk has none of its records any more."""
    watched = Watched(10)
    watched.look(0, leads=leads)
    log = watched.replicas[0].log
    log.log_start_offset, log.local_log_start_offset = 8, 15 if not empty else log.log_end_offset
    wanted = "S2" if empty and not leads else "S4"
    with pytest.raises(Violation, match=f"^{wanted}"):
        watched.look(0, leads=leads)


def slow_hole(
    copies: list[Copy], epochs: list[tuple[int, int]], first: int, end: int
) -> int | None:
    """Find the first hole offset by offset."""
    for at in range(first, end):
        if not any(
            one.begins <= at <= one.last and epoch_at(one.epochs, at) == epoch_at(epochs, at) >= 0
            for one in copies
        ):
            return at
    return None


def test_a_hole_in_the_tier_is_found() -> None:
    """The result equals that of a search of each offset, whatever copies overlap or have other
    epochs."""
    rng = random.Random(1)
    found = set()
    for _ in range(2000):
        epochs = [(0, rng.randrange(3)), (rng.randrange(1, 3), rng.randrange(4, 12))]
        copies = []
        for number in range(rng.randrange(9)):
            first = rng.randrange(14)
            last = first + rng.randrange(8)
            mine = [(epoch_at(epochs, first) if rng.random() < 0.9 else 7, first)]
            border = boundary_after(epochs, first, 99)
            if border <= last:
                mine.append((epoch_at(epochs, border), border))
            copies.append(
                Copy(bytes([number]), (b"", 0), first, last, tuple(mine), 1, False, 1, number)
            )
        asked = copies, epochs, rng.randrange(6), rng.randrange(6, 16)
        assert hole(*asked) == slow_hole(*asked)
        found.add(hole(*asked))
    assert None in found and len(found) > 10


def test_thousands_of_copies_are_looked_at_once_each() -> None:
    """Seed 1399 spent its time on them."""
    looks = 0

    class Counted(Copy):
        @property
        def begins(self) -> int:
            nonlocal looks
            looks += 1
            return self.first

    copies = [
        Counted(b"", (b"", 0), at, at, ((0, at),), 1, False, 1, at, COPY_FINISHED)
        for at in range(5000)
    ]
    assert hole(copies, [(0, 0)], 0, 5000) is None
    assert looks <= 4 * len(copies)


@pytest.mark.parametrize("copying", [True, False])
def test_record_of_an_abandoned_copy_may_come_late(copying: bool) -> None:
    """S6, seed 8948: also over a connection that was abandoned."""
    copy: Any = SimpleNamespace(segment_id=b"s" * 16)
    led = SimpleNamespace(being_copied={copy.segment_id} if copying else set())
    tier = SimpleNamespace(tasks=SimpleNamespace(leading={"t-0": led}))
    broker = SimpleNamespace(context=SimpleNamespace(tier=tier))
    life: Any = SimpleNamespace(node=SimpleNamespace(broker=broker))
    assert tiering._is_being_copied(life, copy) is copying


@pytest.mark.parametrize(
    ("disabled", "active", "stays"), [("false", 13, True), ("false", 15, False), ("true", 15, True)]
)
def test_unfinished_copy_stays_until_a_finished_one_has_its_records(
    monkeypatch: pytest.MonkeyPatch, disabled: str, active: int, stays: bool
) -> None:
    """S3, seeds 3006 and 8915: for a closed segment only while copying is off."""
    watched = Watched(0)
    log = watched.replicas[0].log
    log.segments = SimpleNamespace(active=SimpleNamespace(base_offset=active))
    log.config = SimpleNamespace(effective_copy_lag_ms=0, effective_copy_lag_bytes=0)
    promises: Any = watched.judge._promises
    promises.metadata.image.topics.partition().leader = 1
    promises.configs = lambda _topic: {"remote.log.copy.disable": disabled}
    machine = SimpleNamespace(node_id=1)
    monkeypatch.setattr(watched.judge.state, "replicas", lambda _: [(machine, watched.replicas[0])])
    copy: Any = SimpleNamespace(key=(TOPIC_ID, 0), begins=11, last=14, epochs=((0, 11),))
    assert watched.judge._end.is_wanted(copy) is stays


@pytest.mark.parametrize(
    ("leads", "committed", "allowed"), [(False, 15, True), (True, 15, True), (True, 20, False)]
)
def test_s1_last_stable_offset_may_be_below_the_local_start_until_the_marker_is_committed(
    monkeypatch: pytest.MonkeyPatch, leads: bool, committed: int, allowed: bool
) -> None:
    """S1, seed 90176: the follower began at 10, in a transaction from 4 on that ends at 17."""
    watched = Watched(0)
    log = watched.replicas[0].log
    log.last_stable_offset, log.high_watermark = 4, committed
    monkeypatch.setattr(watched.judge, "_look_at_cover", lambda *_: None)
    monkeypatch.setattr(watched.judge, "_look_at_epochs", lambda *_: None)
    monkeypatch.setattr(watched.judge, "_look_at_leader", lambda *_: None)
    if allowed:
        watched.look(0, leads=leads)
    else:
        with pytest.raises(Violation, match="S1"):
            watched.look(0, leads=leads)


def copy_of(number: int, first: int, last: int, state: int) -> Copy:
    """Return a copy of epoch 0."""
    epochs = ((0, first),)
    return Copy(bytes([number]) * 16, (TOPIC_ID, 0), first, last, epochs, 1, False, 1, 0, state)


@pytest.mark.parametrize(
    ("lost", "finished", "stays"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_unfinished_copy_stays_if_lost_metadata_listed_the_only_other_one(
    monkeypatch: pytest.MonkeyPatch, lost: bool, finished: bool, stays: bool
) -> None:
    """S3, seed 90150: the disk begins at 10; it let 3 to 6 go because of a record that was lost."""
    watched = Watched(0)
    log = watched.replicas[0].log
    log.segments = SimpleNamespace(active=SimpleNamespace(base_offset=15))
    log.config = SimpleNamespace(effective_copy_lag_ms=0, effective_copy_lag_bytes=0)
    promises: Any = watched.judge._promises
    promises.metadata.image.topics.partition().leader = 1
    machine = SimpleNamespace(node_id=1)
    monkeypatch.setattr(watched.judge.state, "replicas", lambda _: [(machine, watched.replicas[0])])
    if lost:
        gone = copy_of(1, 0, 9, COPY_FINISHED)
        watched.judge.state.losses.copies[gone.segment_id] = gone
    known = [copy_of(2, 2, 7, COPY_FINISHED)] if finished else []
    monkeypatch.setattr(watched.judge.state.truth, "finished", lambda _: known)
    assert watched.judge._end.is_wanted(copy_of(3, 3, 6, COPY_STARTED)) is stays
