"""Leaders of the quorum that hear of a majority: one that does not resigns (M17).

A leader counts, as Kafka's does, who has fetched since a majority was last complete. So of one that
is complete at the end of such a time some may have been heard at its begin, and the leader waits
once more as long: from the first silence it may be twice the time.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from metalog.quorum.core.messages import FetchAsked, SnapshotAsked
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
"""A node whose callbacks are further apart stood still, and has just been woken."""


@dataclass
class _Term:
    """One leadership: when each voter was heard, since when too few were, when that was seen."""

    epoch: int
    began_s: float
    heard_s: dict[int, float] = field(default_factory=dict)
    late_s: float | None = None
    looked_s: float = 0.0
    safe_until_s: float = 0.0
    """Until then a majority has been heard whatever comes."""


class CheckQuorumJudge(Judge):
    """Counts the fetches that reach each leader."""

    def __init__(self, world: JudgedWorld) -> None:
        self._loop = world.loop
        timeout_ms = world.shape.setting_ms("controller.quorum.fetch.timeout.ms", FETCH_TIMEOUT_MS)
        self._silent_s = FACTOR * timeout_ms / 1000
        self._terms: dict[NodeLife, _Term] = {}

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Every event of a quorum core passes here."""
        step = QuorumCore.step

        def stepped(core: QuorumCore, event: Any, now_ms: float) -> Any:
            life: Any = CURRENT_LIFE.get()
            term = self._terms.get(life)
            if term is not None and isinstance(event, FetchAsked | SnapshotAsked):
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
        """Nobody leads any more."""
        self._terms.pop(life, None)

    def after(self, life: NodeLife) -> None:
        """M17."""
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
                f"M17: {life} leads epoch {term.epoch} and has heard of no majority since "
                f"{heard_s[needed - 1]:.3f} s"
            )
