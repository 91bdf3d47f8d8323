"""Empty brokers that copy only untiered records, and soon join the ISR (KIP-1023)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.world.cluster import End, Machine
from simulation.world.disks import CHANGES, DiskTrouble
from simulation.world.life import PowerCut
from storage.log.bootstrap import MARKER
from storage.log.log import Log
from storage.objects import Weather
from tests.sim.tier_cluster import NODES, TOPIC, TierCluster

pytestmark = pytest.mark.sim

SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "follower.fetch.last.tiered.offset.enable": "true",
}
OFF = {**SETTINGS, "follower.fetch.last.tiered.offset.enable": "false"}
SEGMENTS_ON_DISK = {"internal.segment.bytes": "1000", "local.retention.bytes": "8000"}
RECORDS = 150


async def filled(world: TierCluster) -> dict[int, bytes]:
    """Fill a topic: closed segments are in the tier, and its beginning only there.

    Returns: the acknowledged records.
    """
    await world.create(SEGMENTS_ON_DISK)
    sent = await world.produce(RECORDS)

    def copied(machine: Machine) -> bool:
        log = world.log(machine)
        return (
            log is not None
            and log.local_log_start_offset > 0
            and log.bounds.copied_to >= log.segments.active.base_offset
        )

    await world.until(lambda: all(copied(machine) for machine in world.machines))
    return sent


async def emptied(world: TierCluster) -> tuple[Machine, Machine]:
    """Return the leader, and another machine that is off and has a new disk."""
    leader = await world.leader()
    victim = next(one for one in world.machines if one is not leader)
    assert victim.life is not None
    victim.end(victim.life, End.KILL)
    victim.swap_disk(None)
    return leader, victim


async def in_sync(world: TierCluster) -> None:
    def whole() -> bool:
        found = [world.replica(machine) for machine in world.machines]
        leaders = [one for one in found if one is not None and one.is_leader]
        return len(leaders) == 1 and len(leaders[0].isr) == NODES

    await world.until(whole)


def same_history(world: TierCluster, victim: Machine) -> Log:
    """S5, P17: assert that log start and epochs equal those of a replica that was always there."""
    own = world.log(victim)
    others = [world.log(one) for one in world.machines if one is not victim]
    assert own is not None
    for other in others:
        assert other is not None
        assert own.log_start_offset == other.log_start_offset
        assert own.epochs.entries == other.epochs.entries
        assert own.producers.encode_snapshot() == other.producers.encode_snapshot()
    return own


@pytest.mark.parametrize(("settings", "share"), [(SETTINGS, 0.15), (OFF, 1.0)])
def test_new_replica_copies_records_that_are_in_no_tier(
    settings: dict[str, str], share: float
) -> None:
    async def story(world: TierCluster) -> None:
        sent = await filled(world)
        leader, victim = await emptied(world)
        await world.boot(victim)
        await in_sync(world)
        own, leaders = same_history(world, victim), world.log(leader)
        assert leaders is not None
        copied = own.log_end_offset - own.local_log_start_offset
        there = leaders.log_end_offset - leaders.local_log_start_offset
        assert len(list(leaders.segments)) > 6
        assert (copied <= share * there) if settings is SETTINGS else (copied == there)
        found: dict[int, bytes] = {}
        while len(found) < len(sent):
            found |= await world.fetched(victim, max(found, default=-1) + 1)
        assert found == sent

    TierCluster(1, settings).run(story)


def when_it_begins(world: TierCluster, victim: Machine, then: Callable[[], None]) -> None:
    """Call `then` at the first file operation of a log that is about to begin.

    Until it has begun, it must be in no ISR.
    """
    assert victim.files is not None and victim.files.on_op is not None
    before, begun = victim.files.on_op, False

    def look(kind: str, path: str) -> None:
        nonlocal begun
        if f"/{TOPIC}-0/" in path:
            log = world.log(victim)
            if log is not None and log.bounds.bootstrapping:
                replicas = [world.replica(one) for one in world.machines]
                isrs = [one.isr for one in replicas if one is not None and one.is_leader]
                assert all(victim.node_id not in isr for isr in isrs)
            if path.endswith(MARKER) and not begun:
                begun = True
                then()
        before(kind, path)

    victim.files.on_op = look


def struck(number: int, strike: Callable[[TierCluster, Machine, Machine], None]) -> None:
    async def story(world: TierCluster) -> None:
        sent = await filled(world)
        leader, victim = await emptied(world)
        victim.boot()
        when_it_begins(world, victim, lambda: strike(world, leader, victim))

        def dead() -> list[Machine]:
            return [one for one in world.machines if one.life is not None and not one.life.alive]

        def over() -> bool:
            log = world.log(victim)
            return bool(dead()) or (
                log is not None and log.log_end_offset > 0 and not log.bounds.bootstrapping
            )

        await world.until(over)
        assert dead()
        sent |= await world.produce(5)
        await world.boot(*dead())
        await in_sync(world)
        same_history(world, victim)
        assert await world.read(len(sent)) == sent

    TierCluster(number, SETTINGS).run(story)


@pytest.mark.parametrize("end", [End.KILL, End.POWER_CUT])
@pytest.mark.parametrize(
    "number",
    [7, *(pytest.param(one, marks=pytest.mark.rest) for one in (1, 3, 5, 9, 12, 15, 18, 21, 24))],
)
def test_s5_new_replica_killed_at_any_step_begins_again(number: int, end: End) -> None:
    def strike(world: TierCluster, leader: Machine, victim: Machine) -> None:
        def crash() -> None:
            assert victim.life is not None
            victim.end(victim.life, end)
            raise PowerCut("a crash at a file call")

        trouble = DiskTrouble(frozenset(CHANGES), after=number - 1, most=1, then=crash)
        victim.disk_troubles.append(trouble)

    struck(number, strike)


@pytest.mark.parametrize("number", range(2))
def test_p17_the_leader_dies_while_the_log_begins(number: int) -> None:
    def strike(world: TierCluster, leader: Machine, victim: Machine) -> None:
        assert leader.life is not None
        leader.end(leader.life, End.POWER_CUT)

    struck(number, strike)


def test_a_store_that_is_down_holds_it_up_and_no_more() -> None:
    async def story(world: TierCluster) -> None:
        await filled(world)
        _, victim = await emptied(world)
        world.objects.weather = Weather(down=True)
        await world.boot(victim)
        await world.produce(5)
        log = world.log(victim)
        assert log is not None and log.log_end_offset == 0
        world.objects.weather = Weather()
        await in_sync(world)
        same_history(world, victim)

    TierCluster(5, SETTINGS).run(story)
