"""The promises of consumer groups as a judge: the quiet phase must bring them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.judges.judge import Judge

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld


class GroupJudge(Judge):
    """Groups converge when nothing is wrong any more; the rest is found by members."""

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world

    def unsettled(self) -> str | None:
        """G7."""
        load = self._world.load
        groups = [] if load is None else list(load.groups.values())
        return next((what for one in groups if (what := one.unsettled()) is not None), None)
