"""Kafka's raft simulation properties, and planted bugs that they must find.

Each property is a story for a seeded world; `testkit.memory.quorum_world` checks M1-M14 after every
event. `python -m tests.sim.test_quorum_properties FIRST LAST` runs all of them for more seeds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from metalog.quorum.core import messages as m
from metalog.quorum.core.following import Following
from metalog.quorum.core.leading import Leading
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.roles import LeaderState
from metalog.quorum.core.voters import ReplicaKey
from testkit.memory.quorum_world import Broken, Node, QuorumWorld, with_part

pytestmark = pytest.mark.sim

Property = Callable[[QuorumWorld], None]
SEEDS_IN_CORE = 60
SEEDS_IN_CI = 200
SEEDS_IN_SOAK = 2000
SEEDS_PER_TEST = 20
TIMING = Timing(election_timeout_ms=300, fetch_timeout_ms=600, election_backoff_max_ms=150)


def advance(world: QuorumWorld, records: int = 5, within_ms: float = 15_000) -> None:
    """Run until the quorum has committed `count` more entries."""
    goal = len(world.log) + records
    if not world.run(within_ms, lambda: len(world.log) >= goal):
        raise Broken(f"M20: stuck at {len(world.log)} records, {goal} wanted")


def leader_of(world: QuorumWorld) -> Node:
    if not world.run(15_000, lambda: world.leader() is not None):
        raise Broken("M20: nobody is elected")
    leader = world.leader()
    assert leader is not None
    return leader


def elects_initial_leader(world: QuorumWorld) -> None:
    advance(world, 1)
    epoch = leader_of(world).saved.epoch
    world.run(2_000)
    if leader_of(world).saved.epoch != epoch:
        raise Broken("M17: an undisturbed leader was replaced")


def elects_after_graceful_loss(world: QuorumWorld) -> None:
    advance(world)
    old = leader_of(world)
    old.resign()
    world.run(60)
    advance(world, 5)
    assert world.leader() is not old
    old.restart()
    world.settle()


def elects_after_hard_loss(world: QuorumWorld) -> None:
    advance(world)
    old = leader_of(world)
    old.stop()
    advance(world)
    world.run(world.rng.uniform(0, 1000))
    old.restart()
    world.settle()


def recovers_after_all_die(world: QuorumWorld) -> None:
    advance(world, world.rng.randint(1, 10))
    for node in world.live:
        node.stop()
    world.run(world.rng.uniform(0, 100))
    nodes = list(world.nodes.values())
    world.rng.shuffle(nodes)
    for node in nodes:
        node.restart()
        world.run(world.rng.uniform(0, 300))
    world.settle()


def replaces_leader_cut_off(world: QuorumWorld) -> None:
    advance(world)
    old = leader_of(world).key.id
    world.cut = {frozenset((old, other)) for other in world.nodes if other != old}
    cut_ms = world.now_ms
    advance(world, 10)
    # The others may be faster than its own timeout.
    resigned_ms = cut_ms + 1.5 * TIMING.fetch_timeout_ms + 100
    world.run(max(world.rng.uniform(0, 1500), resigned_ms - world.now_ms))
    lost = world.nodes[old].core
    assert lost is not None
    if lost.is_leader:
        raise Broken("M17: a leader without a majority stays")
    world.settle()


def goes_on_with_a_majority(world: QuorumWorld) -> None:
    """Cut off a minority of the voters, several times another one."""
    for _ in range(3):
        lost = world.rng.sample(world.voters.ids, len(world.voters) - world.voters.majority)
        world.cut = {frozenset((a, b)) for a in lost for b in world.nodes if a != b}
        advance(world)
    world.settle()


def survives_back_to_back_failures(world: QuorumWorld) -> None:
    world.crash_while_persisting = 0.1
    for _ in range(4):
        leader = world.leader()
        if leader is not None:
            leader.stop()
            world.later(world.rng.uniform(1, 800), leader.restart)
        world.run(world.rng.uniform(10, 900))
    world.settle()


def survives_one_wiped_node(world: QuorumWorld) -> None:
    """Wipe one disk while the others hold all committed entries: no quorum survives more."""
    advance(world, 5)

    wiped = world.nodes[world.rng.choice(world.voters.ids)]
    wiped.stop()
    others = [world.nodes[voter.id] for voter in world.voters.others(wiped.key)]
    # Its messages from before its end have arrived by then.
    world.run(100)

    def everywhere() -> bool:
        return all(node.log.durable[: len(world.log)] == world.log for node in others)

    assert world.run(15_000, everywhere)
    wiped.wipe()
    wiped.start()
    advance(world, 5)
    assert wiped.core is not None
    if wiped.core.is_voter:
        raise Broken("M15: it lends its vote again")
    world.settle()


def counts_a_wiped_voter_with_what_it_has(world: QuorumWorld) -> None:
    """Wipe the disk of the only static voter that has followed the leader.

    None of its entries was committed, so the others have all committed ones; but the leader knew
    its position.
    """
    advance(world, 5)
    leader = leader_of(world)
    others = [world.nodes[voter_id] for voter_id in world.voters.ids if voter_id != leader.key.id]
    wiped = world.rng.choice(others)
    others.remove(wiped)

    def everywhere() -> bool:
        committed = max(world.log, world.stored, key=len)
        return all(node.log.durable[: len(committed)] == committed for node in others)

    world.cut = {frozenset((one.key.id, leader.key.id)) for one in others}
    world.run(world.rng.uniform(150, 250))
    wiped.stop()
    # Its last messages have arrived by then.
    world.run(40)
    if world.leader() is not leader or not everywhere():
        return  # a message was lost, and another leader may have come: not this story
    wiped.wipe()
    wiped.start()

    def is_known() -> bool:
        """Return whether the leader knows the wiped voter's directory, or has resigned.

        It learns the directory from the voter's first fetch.
        """
        core = leader.core
        return core is None or not core.is_leader or wiped.key in core.replicas

    world.run(5_000, is_known)
    world.cut = {frozenset((wiped.key.id, leader.key.id))}
    world.run(600)
    world.cut.clear()
    advance(world, 10)
    world.settle()


PROPERTIES: list[tuple[Property, int]] = [
    (elects_initial_leader, 5),
    (elects_after_graceful_loss, 3),
    (elects_after_hard_loss, 3),
    (recovers_after_all_die, 3),
    (replaces_leader_cut_off, 3),
    (goes_on_with_a_majority, 5),
    (survives_back_to_back_failures, 5),
    (survives_one_wiped_node, 3),
    (counts_a_wiped_voter_with_what_it_has, 5),
]
STATIC = frozenset({counts_a_wiped_voter_with_what_it_has})
"""Stories of voters without known directories."""


def tell(
    story: Property, voters: int, seed: int, make_core: Callable[..., QuorumCore] = QuorumCore
) -> QuorumWorld:
    world = QuorumWorld(
        seed,
        voters=voters,
        observers=seed % 2,
        static=story in STATIC,
        make_core=make_core,
        timing=TIMING,
    )
    world.disk_ms_max = (1, 5, 40)[seed % 3]
    world.loss = (0.0, 0.0, 0.02)[seed % 3]
    world.start()
    story(world)
    return world


@pytest.mark.parametrize("first", range(0, SEEDS_IN_CORE, SEEDS_PER_TEST))
@pytest.mark.parametrize(("story", "voters"), PROPERTIES, ids=lambda p: getattr(p, "__name__", p))
def test_property(story: Property, voters: int, first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        try:
            tell(story, voters, seed)
        except BaseException as error:
            error.add_note(f"seed {seed} of {story.__name__}")
            raise


@pytest.mark.rest
@pytest.mark.parametrize("first", range(SEEDS_IN_CORE, SEEDS_IN_CI, SEEDS_PER_TEST))
@pytest.mark.parametrize(("story", "voters"), PROPERTIES, ids=lambda p: getattr(p, "__name__", p))
def test_property_with_more_seeds(story: Property, voters: int, first: int) -> None:
    test_property(story, voters, first)


def test_follower_with_a_long_tail_of_an_old_epoch_truncates_to_a_snapshot() -> None:
    """Seed 1037: the tail began before the leader's snapshot, and the leader named the same offset
    again and again."""
    tell(*next(one for one in PROPERTIES if one[0] is goes_on_with_a_majority), 1037)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS_IN_CI, SEEDS_IN_SOAK, SEEDS_PER_TEST))
@pytest.mark.parametrize(("story", "voters"), PROPERTIES, ids=lambda p: getattr(p, "__name__", p))
def test_property_for_long(story: Property, voters: int, first: int) -> None:
    test_property(story, voters, first)


class VotesBeforeItPersists(QuorumCore):
    """Messages are sent before the state they depend on is on the disk."""

    def step(self, event: m.Event, now_ms: float) -> list[m.Effect]:
        effects = super().step(event, now_ms)
        return sorted(effects, key=lambda effect: isinstance(effect, m.PersistState))


class CommitsByMinority(Leading):
    def advance_high_watermark(self, state: LeaderState) -> None:
        replica, mark = self._replica, self._replica.flushed_end
        if mark > max(state.epoch_start_offset, replica.high_watermark or 0):
            replica.commit_below(mark)


class TruncatesTooFar(Following):
    """A truncation may remove committed entries."""

    def _truncate(self, diverging: m.OffsetAndEpoch) -> None:
        replica = self._replica
        end_offset = max(0, min(diverging.offset, replica.log.end_offset) - 8)
        replica.flushed_end = min(replica.flushed_end, end_offset)
        replica.effects.append(m.TruncateLog(end_offset))


class ChecksNoEpoch(QuorumCore):
    """Events of an older epoch count in the current one."""

    def step(self, event: m.Event, now_ms: float) -> list[m.Effect]:
        epoch = getattr(event, "epoch", None)
        if epoch is not None and epoch < self.epoch:
            event = event._replace(epoch=self.epoch)  # type: ignore[call-arg]
        return super().step(event, now_ms)


class CommitsThoughStale(Leading):
    """A leader that counts followers without recent fetches, and never resigns."""

    def tick(self, state: LeaderState) -> None:
        state.check_deadline_ms = self._replica.now_ms + 1000
        super().tick(state)

    def _replica_end(self, state: LeaderState, key: ReplicaKey) -> int:
        known = super()._replica_end(state, key)
        return self._replica.flushed_end if known >= 0 else known


class CountsReplacedDisks(Leading):
    """A voter's position is that of any disk of its id in this epoch."""

    def _replace_directory(self, state: LeaderState, key: ReplicaKey) -> None:
        return None

    def _replica_end(self, state: LeaderState, key: ReplicaKey) -> int:
        return max((p.end_offset for k, p in state.replicas.items() if k.matches(key)), default=-1)


# The bug, a factory of cores with it, the number of seeds (each with all stories) within which it
# shows, and the promises that it breaks.
PLANTED: list[tuple[str, Callable[..., QuorumCore], int, str]] = [
    ("VotesBeforeItPersists", VotesBeforeItPersists, 150, "M1|M3"),
    ("CommitsByMinority", with_part(CommitsByMinority), 1, "M8"),
    ("TruncatesTooFar", with_part(TruncatesTooFar), 1, "M10"),
    ("ChecksNoEpoch", ChecksNoEpoch, 5, "M1"),
    ("CommitsThoughStale", with_part(CommitsThoughStale), 1, "M8"),
    ("CountsReplacedDisks", with_part(CountsReplacedDisks), 20, "M8"),
]


def first_seed_that_finds(
    make_core: Callable[..., QuorumCore], within: int
) -> tuple[int, Broken] | None:
    """Return the first seed under which a promise is broken.

    Any other exception is a mistake of the planted bug, and propagates to the caller.
    """
    for seed in range(within):
        for story, voters in PROPERTIES:
            try:
                tell(story, voters, seed, make_core)
            except Broken as broken:
                return seed, broken
    return None


@pytest.mark.rest
@pytest.mark.parametrize(
    ("make_core", "within", "promises"),
    [pytest.param(*planted, id=name) for name, *planted in PLANTED],
)
def test_planted_bug_is_found(
    make_core: Callable[..., QuorumCore], within: int, promises: str
) -> None:
    found = first_seed_that_finds(make_core, within)
    assert found is not None, f"not found in {within} seeds"
    assert re.match(rf"({promises}):", str(found[1])), found


def main(arguments: list[str]) -> None:
    for number in range(int(arguments[0]), int(arguments[1])):
        for story, voters in PROPERTIES:
            try:
                tell(story, voters, number)
            except BaseException:
                print(f"seed {number} of {story.__name__}")
                raise


if __name__ == "__main__":
    main(sys.argv[1:])
