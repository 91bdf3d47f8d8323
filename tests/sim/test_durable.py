"""The judge of durable metadata, which objects to breaches of M8 and M14 only."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from simulation.judges.durable import DurableJudge
from simulation.world.invariants import Violation

pytestmark = pytest.mark.sim


@dataclass(eq=False)
class Life:
    machine: Any
    node: Any


class Voters:
    """Three voters with flushed ends; `look` shows the first one to the judge."""

    def __init__(self, *flushed: int) -> None:
        self._lives = [_life(number, end) for number, end in enumerate(flushed, start=1)]
        machines = [life.machine for life in self._lives]
        world: Any = SimpleNamespace(cluster=SimpleNamespace(machines=machines))
        self._judge = DurableJudge(world)
        for life in self._lives:
            self._judge.after(life)

    def look(self, *, leads: bool, mark: int) -> None:
        quorum = self._lives[0].node.quorum
        quorum.is_leader, quorum.high_watermark = leads, mark
        self._judge.after(self._lives[0])


def _life(node_id: int, flushed: int) -> Any:
    quorum = SimpleNamespace(
        is_started=True,
        is_leader=False,
        high_watermark=0,
        voters=SimpleNamespace(ids=(1, 2, 3)),
        log=SimpleNamespace(_log=None),
        core=SimpleNamespace(_replica=SimpleNamespace(flushed_end=flushed), must_flush=True),
    )
    machine = SimpleNamespace(node_id=node_id, directory_id=None, files=flushed)
    return Life(machine, SimpleNamespace(quorum=quorum, broker=None))


@pytest.fixture(autouse=True)
def disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DurableJudge, "_survives", lambda _self, files, _log, end: end <= files)


def test_m8_leader_may_commit_records_of_two_others() -> None:
    Voters(4, 6, 6).look(leads=True, mark=6)


def test_m8_leader_that_commits_records_of_one_other_is_found() -> None:
    with pytest.raises(Violation, match="M8"):
        Voters(4, 6, 5).look(leads=True, mark=6)


def test_m14_follower_may_treat_its_flushed_records_as_committed() -> None:
    Voters(6, 6, 4).look(leads=False, mark=6)


@pytest.mark.parametrize(("flushed", "holds"), [((4, 6, 6), True), ((4, 6, 4), False)])
def test_m14_broker_may_treat_records_of_a_majority_as_committed(
    flushed: tuple[int, int, int], holds: bool
) -> None:
    """A broker's own disk does not count, only a majority of the voters'."""
    voters = Voters(*flushed)
    broker = _life(5, 0)
    broker.node.quorum.core.must_flush = False
    broker.node.quorum.high_watermark = 6
    if holds:
        voters._judge.after(broker)
    else:
        with pytest.raises(Violation, match="M14"):
            voters._judge.after(broker)


def test_m14_follower_that_treats_unflushed_records_as_committed_is_found() -> None:
    with pytest.raises(Violation, match="M14"):
        Voters(4, 6, 6).look(leads=False, mark=6)


def test_a_leader_may_commit_and_follow_another_before_it_is_looked_at() -> None:
    voters = Voters(4, 6, 6)
    voters.look(leads=True, mark=5)
    voters.look(leads=False, mark=6)


def test_only_what_a_majority_has_is_committed_so() -> None:
    voters = Voters(4, 6, 5)
    voters.look(leads=True, mark=5)
    with pytest.raises(Violation, match="M14"):
        voters.look(leads=False, mark=6)


def test_a_follower_that_led_a_while_ago_is_found() -> None:
    voters = Voters(4, 6, 6)
    voters.look(leads=True, mark=5)
    voters.look(leads=False, mark=5)
    with pytest.raises(Violation, match="M14"):
        voters.look(leads=False, mark=6)
