"""Faults, which undo their effects, also after an error on the way."""

from __future__ import annotations

import random

import pytest

from kraftbox.chaos.faults import (
    KINDS,
    kill_leader,
    lone_leader,
    power_cut,
    power_cut_all,
    replace_broker,
    slow_network,
)
from kraftbox.chaos.scene import Holding, PartitionView, Scene
from kraftbox.chaos.target import HOST, Ability, TargetError, TargetNode
from testkit.memory.chaos_target import Target


class Stage(Scene):
    async def partitions(self) -> list[PartitionView]:
        return [PartitionView(0, 2, [2, 3, 1], [1, 2, 3])]


def stage(*refuses: str, min_isr: int = 1) -> tuple[Stage, Target]:
    target = Target(*refuses)
    return Stage(target, "t", min_isr), target  # type: ignore[arg-type]


async def test_a_killed_leader_is_started_again_after_an_error_inside() -> None:
    scene, target = stage()
    with pytest.raises(ZeroDivisionError):
        async with kill_leader(scene, random.Random(1)) as hit:
            assert hit.nodes == [2]
            raise ZeroDivisionError
    assert target.done == ["kill 2", "start 2"]


async def test_the_leader_comes_back_though_a_follower_does_not_resume() -> None:
    scene, target = stage("resume 3")
    with pytest.raises(TargetError):
        async with lone_leader(scene, random.Random(1)):
            raise AssertionError("not reached")
    assert target.done == ["pause 3", "pause 1", "kill 2", "resume 3", "resume 1", "start 2"]


@pytest.mark.parametrize(("min_isr", "counts"), [(2, {1}), (3, {1, 2}), (9, {1, 2})])
async def test_a_power_cut_hits_the_leader_and_fewer_brokers_than_min_isr(
    min_isr: int, counts: set[int]
) -> None:
    seen = set()
    for seed in range(20):
        scene, target = stage(min_isr=min_isr)
        async with power_cut(scene, random.Random(seed)) as hit:
            assert hit.nodes[0] == 2
            assert target.done == [f"kill {node}" for node in hit.nodes]
        assert target.done[len(hit.nodes) :] == [f"start {node}" for node in hit.nodes]
        seen.add(len(set(hit.nodes)))
    assert seen == counts


async def test_with_min_isr_1_no_power_cut_goes_without_loss() -> None:
    scene, target = stage(min_isr=1)
    with pytest.raises(TargetError, match=r"min\.insync\.replicas is 1 with 3 replicas"):
        await power_cut(scene, random.Random(1)).__aenter__()
    assert target.done == []


async def test_a_power_cut_of_all_starts_all_though_one_was_not_killed() -> None:
    scene, target = stage("kill 3")
    with pytest.raises(TargetError):
        await power_cut_all(scene, random.Random(1)).__aenter__()
    assert sorted(target.done) == sorted(
        f"{action} {node}" for action in ("kill", "start") for node in (1, 2, 3)
    )


def test_fault_that_kills_all_lossy_brokers_is_never_drawn() -> None:
    every = frozenset(Ability)
    firm = every - {Ability.LOSSY_DISK}
    assert {name for name, kind in KINDS.items() if not kind.is_drawn(every)} == {
        "kill-all",
        "power-cut-all",
    }
    assert KINDS["kill-all"].is_drawn(firm)
    assert not KINDS["power-cut"].is_drawn(firm)


def held(
    isr: set[int], *, min_isr: int = 2, replicas: tuple[int, ...] = (11, 12, 13), name: str = "t-0"
) -> Holding:
    return Holding(name, frozenset(replicas), frozenset(isr), min_isr)


class Disks(Stage):
    """Brokers 11 to 14 next to controller 1, with brokers' reports before and after the kill."""

    def __init__(self, before: list[Holding], after: list[Holding] | None = None) -> None:
        self.book = Target()
        super().__init__(self.book, "t", 2)  # type: ignore[arg-type]
        self.told = [before, before if after is None else after]

    async def partitions(self) -> list[PartitionView]:
        return [PartitionView(0, 12, [12, 13, 11], [11, 12, 13])]

    async def members(self) -> list[TargetNode]:
        brokers = [TargetNode(one, True, False, True, None) for one in (11, 12, 13, 14)]
        return [TargetNode(1, True, True, True, None), *brokers]

    async def holdings(self) -> list[Holding]:
        return self.told.pop(0)


@pytest.mark.parametrize(("min_isr", "counts"), [(2, {1, 2}), (1, {1, 2, 3})])
async def test_as_many_brokers_are_replaced_as_others_in_sync_can_spare(
    min_isr: int, counts: set[int]
) -> None:
    """F22: broker 14 holds no replica and can always be spared; controllers keep their disks."""
    seen = set()
    for seed in range(40):
        scene = Disks([held({11, 12, 13}, min_isr=min_isr)])
        async with replace_broker(scene, random.Random(seed)) as hit:
            assert hit.nodes[0] == 12  # the leader
            done = [f"{action} {node}" for action in ("kill", "empty") for node in hit.nodes]
            assert scene.book.done == done
            holders = set(hit.nodes) - {14}
            assert hit.detail == (
                f"{len(holders)} replicas emptied; "
                f"each partition had at least {3 - len(holders)} other replicas in sync"
            )
        assert scene.book.done[len(done) :] == [f"start {node}" for node in hit.nodes]
        seen.add(len(hit.nodes))
    assert seen == counts


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (held({12}, min_isr=1, replicas=(12,), name="one-0"), "one-0 needs 1 .* has none"),
        (held({12, 13}, name="u-3"), r"u-3 needs 2 other replicas in sync, has \[13\]"),
        (held({11, 12, 13}, min_isr=3, name="all-0"), r"all-0 needs 3 .* has \[11, 13\]"),
    ],
)
async def test_replace_broker_is_refused_if_another_topic_needs_the_disk(
    other: Holding, said: str
) -> None:
    everywhere = [
        other._replace(name=f"x-{n}", replicas=frozenset({n}), isr=frozenset({n}))
        for n in (11, 13, 14)
    ]
    scene = Disks([held({11, 12, 13}), other, *everywhere])
    with pytest.raises(TargetError, match=f"no broker's disk may be emptied: {said}"):
        await replace_broker(scene, random.Random(1)).__aenter__()
    assert scene.book.done == []


async def test_a_disk_that_is_needed_once_its_broker_is_down_is_kept() -> None:
    scene = Disks([held({11, 12, 13})], [held({11, 12, 13}), held({12, 13})])
    with pytest.raises(TargetError, match=r"the disks of \[12, 14\] may not be .*: t-0 needs 2"):
        await replace_broker(scene, random.Random(1)).__aenter__()
    assert scene.book.done == ["kill 12", "kill 14", "start 12", "start 14"]


async def test_every_link_is_slow_both_ways_and_whole_afterwards() -> None:
    scene, target = stage()
    async with slow_network(scene, random.Random(1)):
        ends = {(rule.source, rule.target) for rule in target.rules}
        assert ends == {(a, b) for a in (HOST, 1, 2, 3) for b in (HOST, 1, 2, 3) if a != b}
    assert target.rules == ()


async def test_revive_restarts_nodes_that_do_not_run() -> None:
    scene, target = stage("resume 2")

    async def members() -> list[TargetNode]:
        return [TargetNode(1, True, True, True, None), TargetNode(2, True, False, False, None)]

    target.members = members  # type: ignore[method-assign]
    await scene.revive()
    assert target.done == ["heal", "resume 2", "start 2"]


async def test_kill_leader_without_any_leader_is_refused() -> None:
    scene, _ = stage()

    async def none() -> list[PartitionView]:
        return [PartitionView(0, -1, [1, 2, 3], [1])]

    scene.partitions = none  # type: ignore[method-assign]
    with pytest.raises(TargetError, match="no partition has a leader"):
        await KINDS["kill-leader"].action(scene, random.Random(1)).__aenter__()


@pytest.mark.parametrize(("isr_told_by_3", "whole"), [([1, 2, 3], True), ([2, 3], False)])
async def test_cluster_is_whole_only_if_every_broker_reports_full_isr(
    isr_told_by_3: list[int], whole: bool
) -> None:
    """A leader cut off from the controllers does not know for a while that the ISR has changed."""
    scene, _ = stage()

    async def told_by(node_id: int) -> list[PartitionView]:
        return [PartitionView(0, 2, [2, 3, 1], isr_told_by_3 if node_id == 3 else [1, 2, 3])]

    scene._partitions_seen_by = told_by  # type: ignore[method-assign]
    assert (await scene.missing() is None) is whole
