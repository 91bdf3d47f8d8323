"""Deadlines of a run's steps, whose errors name the pending condition."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from client.producer import IdempotentProducer
from kraftbox.chaos import run, workload
from kraftbox.chaos.checks import summary
from kraftbox.chaos.deadline import within
from kraftbox.chaos.ledger import Ledger
from kraftbox.chaos.schedule import Step
from kraftbox.chaos.target import TargetError
from kraftbox.chaos.workload import Load, Workload
from testkit.memory.chaos_target import Target


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_deadline_error_names_the_overdue_step() -> None:
    with pytest.raises(TargetError, match="start 3: not finished after 0.01 s"):
        async with within(0.01, lambda: "start 3"):
            await forever()


async def test_a_timeout_of_the_steps_own_is_no_deadline() -> None:
    with pytest.raises(TimeoutError, match="its own"):
        async with within(60.0, "a step"):
            raise TimeoutError("its own")


class Stuck(Target):
    """A cluster in which a node's start never ends, unless the node is revived."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = True

    async def act(self, action: str, node_id: int) -> None:
        await super().act(action, node_id)
        if action == "start" and self.stuck:
            self.stuck = False
            await forever()


async def test_a_fault_that_cannot_be_undone_ends_and_names_what_it_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def whole(_: Any, __: float) -> bool:
        return True

    monkeypatch.setattr(run, "ACTION_S_MAX", 0.05)
    monkeypatch.setattr(run, "QUIET_S", 0.0)
    monkeypatch.setattr(run.Scene, "wait_until_whole", whole)
    target = Stuck()
    made = run.Run(target, Load(), 1)  # type: ignore[arg-type]
    await made._step(Step("kill-all", 0.0, 1))
    (entry,) = made._timeline
    assert entry.trouble == "waiting for start 3: not finished after 0.05 s"
    assert made._trouble == [f"kill-all: {entry.trouble}"]
    assert "heal" in target.done


class Mute:
    """A cluster that never answers."""

    cache = SimpleNamespace(leaders={})

    def __getattr__(self, _: str) -> Any:
        return self.ask

    async def ask(self, *_: Any, **__: Any) -> Any:
        await forever()


async def test_abandoned_sends_without_answer_have_an_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = asyncio.Event()
    offered: list[int] = []

    class Producer(IdempotentProducer):
        async def start(self) -> None:
            self.producer_id, self._epoch = 1, 0

        def send(self, topic: str, partition: int, records: Any) -> Any:
            offered.append(len(records))
            if partition == 5:
                begun.set()
            return super().send(topic, partition, records)

    ledger = Ledger(run.history_clock())
    made = Workload(
        [("nobody", 1)],
        ledger,
        Load(producers=1, consumers=0, records_per_s=10_000),
        random.Random(1),
    )

    async def client(*_: Any) -> Any:
        return Mute()

    monkeypatch.setattr(workload, "IdempotentProducer", Producer)
    monkeypatch.setattr(made, "_client", client)
    made.start()
    await begun.wait()
    with pytest.raises(TargetError, match="the last sends: not finished"):
        async with within(0.05, "the last sends"):
            await made.stop()
    await made.close()
    assert summary(ledger.history)["sends"] == sum(offered) > 0
