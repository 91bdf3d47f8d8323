"""Votes over running nodes: one in each epoch, and on disk before the response leaves (M3)."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from metalog.quorum.core.messages import ReplyVote, VoteRequested
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.driver import Answer, CoreDriver
from simulation.judges.judge import Judge
from simulation.world.invariants import Violation
from simulation.world.life import CURRENT_LIFE

if TYPE_CHECKING:
    from metalog.quorum.core.voters import ReplicaKey
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife


class VoteJudge(Judge):
    """Checks each response to a candidate at the instant at which it leaves."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._changes = world.changes
        self._asked: dict[tuple[int, int], VoteRequested] = {}
        self._given: dict[tuple[int, bytes | None, int], ReplicaKey] = {}
        self._broken: list[str] = []

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hook into the place that every vote request and response passes."""
        step, answer = QuorumCore.step, CoreDriver.answer

        def asked(core: QuorumCore, event: Any, now_ms: float) -> Any:
            if isinstance(event, VoteRequested) and not event.pre_vote:
                self._asked[id(core), event.token] = event
            return step(core, event, now_ms)

        def answered(driver: CoreDriver, effect: Answer) -> None:
            request = self._asked.pop((id(driver.core), effect.token), None)
            life: Any = CURRENT_LIFE.get()
            granted = isinstance(effect, ReplyVote) and effect.granted
            if request is not None and granted and life is not None:
                self._look(life, driver, request)
                self._changes.marked.add(id(self))
            answer(driver, effect)

        with (
            mock.patch.object(QuorumCore, "step", asked),
            mock.patch.object(CoreDriver, "answer", answered),
        ):
            yield

    def _look(self, life: NodeLife, driver: CoreDriver, request: VoteRequested) -> None:
        machine, candidate, epoch = life.machine, request.candidate, request.epoch
        first = self._given.setdefault((machine.node_id, machine.directory_id, epoch), candidate)
        path = driver.log.state_file.path
        file = json.loads(machine.disk.read(path)) if machine.disk.exists(path) else {}
        written = (file.get("leaderEpoch", -1), file.get("votedId", -1))
        if first != candidate:
            self._broken.append(f"M3: {life} votes for {first} and {candidate} in epoch {epoch}")
        elif written[0] < epoch or (written[0] == epoch and written[1] != candidate.id):
            self._broken.append(
                f"M3: {life} votes for {candidate} in epoch {epoch}; on disk are the epoch and "
                f"vote {written}"
            )

    def after(self, life: NodeLife) -> None:
        """Raise the violation that was found while the node responded."""
        if self._broken:
            raise Violation(self._broken[0])
