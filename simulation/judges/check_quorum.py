"""Check quorum: a leader of the metadata quorum that gets no fetches from a majority resigns (M17).

As in Kafka, a leader counts the voters that have fetched since a majority was last complete. Of a
majority that is complete at the end of such a period, some voters may have fetched at its
beginning. The leader then waits one more period, so from the last fetch it may take twice the
timeout.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from metalog.quorum.core.messages import FetchRequested, SnapshotRequested
from metalog.quorum.core.quorum import QuorumCore
from simulation.judges.judge import Judge
from simulation.world.invariants import Violation
from simulation.world.life import CURRENT_LIFE

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife

FETCH_TIMEOUT_MS = 2000
"""The default of `controller.quorum.fetch.timeout.ms`."""
FACTOR = 1.5
PAUSED_S = 0.5
"""Seconds between callbacks after which a node counts as paused and just resumed."""


@dataclass
class _Term:
    """One leadership: the time of each voter's last fetch, and the times since when there are too
    few and when that was last checked."""

    epoch: int
    began_s: float
    heard_s: dict[int, float] = field(default_factory=dict)
    late_s: float | None = None
    looked_s: float = 0.0
    safe_until_s: float = 0.0
    """Virtual time until which a majority has fetched recently enough in any case."""


class CheckQuorumJudge(Judge):
    """Tracks the fetches that reach each leader."""

    def __init__(self, world: JudgedWorld) -> None:
        self._loop = world.loop
        timeout_ms = world.shape.setting_ms("controller.quorum.fetch.timeout.ms", FETCH_TIMEOUT_MS)
        self._silent_s = FACTOR * timeout_ms / 1000
        self._terms: dict[NodeLife, _Term] = {}

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hook into the place that every event of a quorum core passes."""
        step = QuorumCore.step

        def stepped(core: QuorumCore, event: Any, now_ms: float) -> Any:
            life: Any = CURRENT_LIFE.get()
            term = self._terms.get(life)
            if term is not None and isinstance(event, FetchRequested | SnapshotRequested):
                term.heard_s[event.replica.id] = self._loop.time()
            effects = step(core, event, now_ms)
            if not core.is_leader:
                self._terms.pop(life, None)
            elif term is None or term.epoch != core.epoch:
                now_s = self._loop.now_s
                self._terms[life] = _Term(core.epoch, now_s, safe_until_s=now_s + self._silent_s)
                self.due_s = min(self.due_s, now_s + self._silent_s)
            return effects

        with mock.patch.object(QuorumCore, "step", stepped):
            yield

    def over(self, life: NodeLife, *, lossy: bool) -> None:
        """End the leadership of this process."""
        self._terms.pop(life, None)

    def after(self, life: NodeLife) -> None:
        """Raise Violation if a leader lacks a majority for too long (M17)."""
        term = self._terms.get(life)
        if term is not None and self._loop.now_s > term.safe_until_s:
            self._look(life, term)
        self.due_s = min((one.safe_until_s for one in self._terms.values()), default=math.inf)

    def _look(self, life: NodeLife, term: _Term) -> None:
        node, now_s = life.node, self._loop.now_s
        if node is None or node.quorum is None:
            return
        others = [one for one in node.quorum.voters.ids if one != life.machine.node_id]
        needed = (len(others) + 1) // 2
        heard_s = sorted((term.heard_s.get(one, term.began_s) for one in others), reverse=True)
        if not others or now_s - heard_s[needed - 1] <= self._silent_s:
            term.late_s = None
            if others:
                term.safe_until_s = heard_s[needed - 1] + self._silent_s
            return
        if term.late_s is None or now_s - term.looked_s > PAUSED_S:
            term.late_s = now_s
        term.looked_s = now_s
        if now_s - term.late_s > self._silent_s + PAUSED_S:
            raise Violation(
                f"M17: {life} leads epoch {term.epoch} and has had no majority since "
                f"{heard_s[needed - 1]:.3f} s"
            )
