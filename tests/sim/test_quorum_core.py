"""The quorum core under random faults, and planted bugs that the same world must find.

`python -m tests.sim.test_quorum_core FIRST LAST` runs more seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from metalog.quorum.core import messages as m
from metalog.quorum.core.electing import Electing
from metalog.quorum.core.leading import Leading
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import Replica
from metalog.quorum.core.roles import LeaderState
from metalog.quorum.core.voters import ReplicaKey
from testkit.memory.quorum_world import Broken, QuorumWorld, with_part

pytestmark = pytest.mark.sim

SIZES = [(1, 0), (3, 0), (3, 1), (5, 0), (2, 0), (4, 1)]
STEPS = 8


def run_seed(
    seed: int, size: tuple[int, int], make_core: Callable[..., QuorumCore] = QuorumCore
) -> QuorumWorld:
    """Run faults of every kind in random order, then none: the quorum must continue."""
    world = QuorumWorld(seed, voters=size[0], observers=size[1], make_core=make_core)
    world.start()
    assert world.run(10_000, lambda: len(world.log) > 5), "no first progress"
    for _ in range(STEPS):
        _fault(world)
        world.run(world.rng.uniform(100, 6000))
    world.settle()
    return world


def _fault(world: QuorumWorld) -> None:
    rng = world.rng
    nodes = list(world.nodes.values())
    match rng.randrange(6):
        case 0:
            victims = [rng.choice(nodes)]
        case 1:
            victims = [node for node in nodes if rng.random() < 0.5]
        case 2:
            victims = []
            for node in nodes:
                node.restart()
        case 3:
            victims = []
            pairs = [frozenset((a, b)) for a in world.nodes for b in world.nodes if a < b]
            world.cut = {pair for pair in pairs if rng.random() < 0.4}
        case 4:
            victims = []
            world.loss = rng.choice([0.0, 0.05, 0.3])
            world.cut = set()
        case _:
            victims = []
            world.crash_while_persisting = rng.choice([0.0, 0.2, 0.5])
    for node in victims:
        if node.core is not None:
            node.stop()


def run_contended(seed: int, make_core: Callable[..., QuorumCore] = QuorumCore) -> QuorumWorld:
    """Run with timeouts as short as a message takes, and voters that fail while they persist a
    vote."""
    world = QuorumWorld(seed, voters=5, make_core=make_core)
    world.timing = world.timing._replace(
        election_timeout_ms=20, fetch_timeout_ms=60, election_backoff_max_ms=10
    )
    world.start()
    for _ in range(20):
        world.crash_while_persisting = 0.3
        world.run(120)
        leader = world.leader()
        if leader is not None:
            leader.stop()
            world.later(world.rng.uniform(1, 200), leader.restart)
    world.timing = world.timing._replace(election_timeout_ms=1000, fetch_timeout_ms=2000)
    for node in world.live:
        node.stop()
    world.settle()
    return world


@pytest.mark.parametrize("seed", range(12))
def test_promises_hold_in_contended_elections(seed: int) -> None:
    run_contended(seed)


@pytest.mark.parametrize("seed", range(36))
def test_promises_hold_under_faults(seed: int) -> None:
    run_seed(seed, SIZES[seed % len(SIZES)])


def test_equal_seeds_give_equal_runs() -> None:
    first, second = (run_seed(4, (3, 1)) for _ in range(2))
    assert first.log == second.log and first.leaders == second.leaders


def test_a_cut_off_node_that_comes_back_does_not_disturb_the_leader() -> None:
    world = QuorumWorld(5, voters=3)
    world.start()
    world.run(10_000, lambda: len(world.log) > 5)
    leader = world.leader()
    assert leader is not None and leader.core is not None
    epoch = leader.core.epoch
    lost = next(n for n in world.nodes.values() if n is not leader)
    world.cut = {frozenset((lost.key.id, other)) for other in world.nodes if other != lost.key.id}
    world.run(20_000)
    world.cut = set()
    world.run(10_000)
    assert leader.core.is_leader and leader.core.epoch == epoch


@pytest.mark.parametrize("seed", range(10))
def test_a_dead_leader_is_missed_before_the_fetch_timeout(seed: int) -> None:
    """Its port is closed, which is enough for a follower to send pre-votes."""
    world = QuorumWorld(seed, voters=3, observers=1)
    world.start()
    world.run(10_000, lambda: len(world.log) > 5)
    old = world.leader()
    assert old is not None
    old.stop()
    killed_ms, committed = world.now_ms, len(world.log)
    assert world.run(10_000, lambda: len(world.log) > committed + 1)
    assert world.now_ms - killed_ms < world.timing.fetch_timeout_ms / 2
    world.settle()


@pytest.mark.parametrize("seed", range(10))
def test_a_port_that_is_closed_to_one_follower_does_not_disturb_the_leader(seed: int) -> None:
    """M17, M20: the follower sends a pre-vote now and then, and reconnects in the end."""
    world = QuorumWorld(seed, voters=3)
    world.start()
    world.run(10_000, lambda: len(world.log) > 5)
    leader = world.leader()
    assert leader is not None and leader.core is not None
    epoch = leader.core.epoch
    apart, other = (n for n in world.nodes.values() if n is not leader)
    world.run(3_000)
    world.votes_asked.clear()
    world.closed = {frozenset((leader.key.id, apart.key.id))}
    world.run(60_000)
    most = 60_000 / (world.timing.election_backoff_max_ms / 2) * 2
    assert 0 < world.votes_asked[other.key.id] < most
    assert leader.core.is_leader and leader.core.epoch == epoch
    world.closed = set()
    mark = len(world.log)
    assert world.run(5_000, lambda: apart.high_watermark > mark)
    assert leader.core.is_leader and leader.core.epoch == epoch


def test_a_leader_cut_off_resigns_and_commits_nothing() -> None:
    world = QuorumWorld(6, voters=3)
    world.start()
    world.run(10_000, lambda: len(world.log) > 5)
    leader = world.leader()
    assert leader is not None and leader.core is not None
    key = leader.key.id
    world.cut = {frozenset((key, other)) for other in world.nodes if other != key}
    world.run(100)
    mark = leader.high_watermark
    world.run(6_000)
    assert not leader.core.is_leader and leader.high_watermark == mark
    other = world.leader()
    assert other is not None and other is not leader
    world.settle()


def test_m15_wiped_voter_returns_as_an_observer() -> None:
    world = QuorumWorld(7, voters=3)
    world.start()
    world.run(10_000, lambda: len(world.log) > 5)
    wiped = world.nodes[2]
    wiped.stop()
    wiped.wipe()
    wiped.start()
    world.run(10_000)
    assert wiped.core is not None and not wiped.core.is_voter
    assert wiped.log.entries[:5] == world.log[:5]
    world.settle()


class CommitsByMinority(Leading):
    def advance_high_watermark(self, state: LeaderState) -> None:
        replica, mark = self._replica, self._replica.flushed_end
        if mark > max(state.epoch_start_offset, replica.high_watermark or 0):
            replica.commit_below(mark)


class VotesForAnyLog(Electing):
    def _may_grant(self, event: m.VoteRequested) -> bool:
        return super()._may_grant(event._replace(last=m.OffsetAndEpoch(1 << 40, 1 << 30)))


class ForgetsItsVote(Replica):
    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self.voted = None


class CountsAnUnflushedLog(Leading):
    def _replica_end(self, state: LeaderState, key: ReplicaKey) -> int:
        return self._replica.log.end_offset


@pytest.mark.rest
@pytest.mark.parametrize(
    ("bug", "within_seeds", "promise"),
    [(CommitsByMinority, 2, "M8"), (VotesForAnyLog, 40, "M4"), (CountsAnUnflushedLog, 5, "M8")],
)
def test_a_planted_bug_is_found(bug: type[Any], within_seeds: int, promise: str) -> None:
    """The broken promise must be the bug's; any other exception is a mistake of this test."""
    for seed in range(within_seeds):
        try:
            run_seed(seed, SIZES[1 + seed % 3 if seed % 2 else 3], with_part(bug))
        except Broken as broken:
            assert str(broken).startswith(f"{promise}:")
            return
    pytest.fail(f"{bug.__name__} was not found in {within_seeds} seeds")


@pytest.mark.parametrize("known", ["called", "stored"])
def test_a_leader_that_lacks_the_committed_tail_is_found(known: str) -> None:
    """M4: the records that it still has may agree with the committed ones.

    This also holds if no leader has committed yet what a majority has on its disks.
    """
    world = QuorumWorld(8, voters=3)
    world.start()
    world.run(10_000, lambda: len(world.log) > 5)
    leader = world.leader()
    assert leader is not None and leader.core is not None
    world.check_newest_leader(leader, leader.core.epoch)
    assert len(world.stored) >= len(world.log)
    if known == "stored":
        world.log.clear()
    else:
        world.stored.clear()
    leader.log.entries = leader.log.entries[: len(world.log or world.stored) - 1]
    with pytest.raises(Broken, match=f"M4: .* {known} committed"):
        world.check_newest_leader(leader, leader.core.epoch)


def test_a_forgotten_vote_is_found() -> None:
    for seed in range(60):
        try:
            run_contended(seed, with_part(ForgetsItsVote))
        except Broken as broken:
            assert str(broken)[:2] in ("M1", "M3")
            return
    pytest.fail("ForgetsItsVote was not found")


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        run_seed(number, SIZES[number % len(SIZES)])
        run_contended(number)
    print("no promise was broken")
