"""The look at a cluster before its first fault."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from kraftbox.chaos import run
from kraftbox.chaos.first_look import complaint, free_name, look_first
from kraftbox.chaos.schedule import Step
from kraftbox.chaos.target import TargetError, TargetNode
from kraftbox.chaos.workload import Load
from testkit.memory.chaos_target import Target


class Ill(Target):
    """A cluster whose nodes are whole again after any action on them."""

    def __init__(self, **damage: str) -> None:
        super().__init__()
        self.damage = {int(name[1:]): text for name, text in damage.items()}

    async def members(self) -> list[TargetNode]:
        return [
            one._replace(is_running=False, damage=self.damage[one.node_id])
            if one.node_id in self.damage
            else one
            for one in await super().members()
        ]

    async def act(self, action: str, node_id: int) -> None:
        await super().act(action, node_id)
        self.damage.pop(node_id, None)


async def test_cluster_that_is_not_whole_is_refused_with_the_name_of_the_broker() -> None:
    """docs/chaos.md: a fault comes only when the cluster is whole, and so does the first one."""
    target = Ill(n2="killed", n3="cut off")
    with pytest.raises(TargetError) as refused:
        await look_first(target, start=False)
    assert str(refused.value) == (
        "the cluster is not whole: broker 2 is killed, broker 3 is cut off: "
        "start it, or give --start"
    )
    assert target.done == []


async def test_start_repairs_each_node_by_its_damage() -> None:
    target = Ill(n1="paused", n2="killed", n3="cut off")
    await look_first(target, start=True)
    assert target.done == ["resume 1", "start 2", "reconnect 3"]
    assert complaint(await target.members()) is None


async def test_whole_cluster_is_left_alone() -> None:
    target = Ill()
    await look_first(target, start=True)
    assert target.done == []


def test_seed_can_be_repeated_because_its_topic_gets_a_free_name() -> None:
    assert free_name("chaos-5", ["chaos-6"]) == "chaos-5"
    assert free_name("chaos-5", ["chaos-5", "chaos-5-2"]) == "chaos-5-3"


class Idle:
    """Clients that do nothing."""

    starts_over = 0

    def __init__(self, *_: Any) -> None:
        pass

    def start(self) -> None:
        pass

    async def nothing(self, *_: Any) -> None:
        pass

    prepare = stop = close = read_all = nothing


def a_run(monkeypatch: pytest.MonkeyPatch, *whole: bool) -> tuple[run.Run, list[float]]:
    """Return a run on a cluster that is whole or not at each look, and the waits of the looks."""
    answers, waits = iter(whole), []

    async def wait_until_whole(self: Any, wait_s: float) -> bool:
        waits.append(wait_s)
        found = next(answers)
        self.lacks = "" if found else "broker 2 is killed"
        return found

    monkeypatch.setattr(run, "Workload", Idle)
    monkeypatch.setattr(run, "QUIET_S", 0.0)
    monkeypatch.setattr(run.Scene, "wait_until_whole", wait_until_whole)
    return run.Run(Target(), Load(), 1, pace=run.Pace(warm_up_s=0.0)), waits  # type: ignore[arg-type]


async def test_run_on_cluster_without_all_replicas_in_sync_does_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault comes only when the cluster is whole, and so does the first one."""
    made, _ = a_run(monkeypatch, False)
    with pytest.raises(TargetError, match="^the cluster is not whole: broker 2 is killed$"):
        await made.go(iter(()), 1.0)


async def test_run_ends_after_a_fault_that_the_cluster_did_not_survive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run waits once for the cluster to recover, and the finding names what is missing."""
    made, waits = a_run(monkeypatch, True, False, False)
    outcome = await asyncio.wait_for(
        made.go(itertools.repeat(Step("kill-all", 0.0, 1)), 3600.0), 60.0
    )
    assert len(outcome.timeline) == 1
    assert outcome.findings[0].rule == "P26 not-whole"
    assert outcome.findings[0].examples == ["broker 2 is killed"]
    assert waits == [run.WHOLE_S_MAX, run.WHOLE_S_MAX, run.LAST_LOOK_S]
