"""Faults undo what they did, also when something goes wrong on the way."""

from __future__ import annotations

import random

import pytest

from kraftbox.chaos.faults import KINDS, kill_leader, lone_leader, slow_network
from kraftbox.chaos.scene import PartitionView, Scene
from kraftbox.chaos.target import HOST, TargetError, TargetNode
from testkit.memory.chaos_target import Target


class Stage(Scene):
    async def partitions(self) -> list[PartitionView]:
        return [PartitionView(0, 2, [2, 3, 1], [1, 2, 3])]


def stage(*refuses: str) -> tuple[Stage, Target]:
    target = Target(*refuses)
    return Stage(target, "t"), target  # type: ignore[arg-type]


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


async def test_every_link_is_slow_both_ways_and_whole_afterwards() -> None:
    scene, target = stage()
    async with slow_network(scene, random.Random(1)):
        ends = {(rule.source, rule.target) for rule in target.rules}
        assert ends == {(a, b) for a in (HOST, 1, 2, 3) for b in (HOST, 1, 2, 3) if a != b}
    assert target.rules == ()


async def test_what_does_not_run_is_revived() -> None:
    scene, target = stage("resume 2")

    async def members() -> list[TargetNode]:
        return [TargetNode(1, True, True, True, None), TargetNode(2, True, False, False, None)]

    target.members = members  # type: ignore[method-assign]
    await scene.revive()
    assert target.done == ["heal", "resume 2", "start 2"]


async def test_no_partition_with_a_leader_is_said() -> None:
    scene, _ = stage()

    async def none() -> list[PartitionView]:
        return [PartitionView(0, -1, [1, 2, 3], [1])]

    scene.partitions = none  # type: ignore[method-assign]
    with pytest.raises(TargetError, match="no partition has a leader"):
        await KINDS["kill-leader"].action(scene, random.Random(1)).__aenter__()


@pytest.mark.parametrize(("isr_told_by_3", "whole"), [([1, 2, 3], True), ([2, 3], False)])
async def test_a_cluster_is_whole_when_every_broker_says_so(
    isr_told_by_3: list[int], whole: bool
) -> None:
    """A leader that was cut off from the controllers believes for a while that nothing happened."""
    scene, _ = stage()

    async def told_by(node_id: int) -> list[PartitionView]:
        return [PartitionView(0, 2, [2, 3, 1], isr_told_by_3 if node_id == 3 else [1, 2, 3])]

    scene._partitions_as_told_by = told_by  # type: ignore[method-assign]
    assert await scene.is_whole() is whole
