"""Shell: The progress line of one run, on a terminal's standard error."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.swarm import Broken, SwarmWorld
    from simulation.world.cluster import NodeLife

EVERY_S = 0.5
LOOK_EVERY = 256
"""Callbacks between two looks at the clock, which would cost more than the callbacks."""


class Ticker:
    """A watcher that shows virtual time and faults while a run lasts; silent on a pipe."""

    def __init__(self, world: SwarmWorld) -> None:
        self._world = world
        self._calls = 0
        self._shown_s = time.monotonic()
        self._is_shown = False
        self._is_terminal = sys.stderr.isatty()

    def after(self, life: NodeLife) -> None:
        """Show the progress, at most twice a second."""
        self._calls += 1
        if self._calls % LOOK_EVERY or not self._is_terminal:
            return
        now_s = time.monotonic()
        if now_s - self._shown_s >= EVERY_S:
            self._shown_s = now_s
            self._is_shown = True
            sys.stderr.write(f"\r\x1b[2K{self.line()}")
            sys.stderr.flush()

    def line(self) -> str:
        """Return the virtual time and the number of faults that have begun."""
        world = self._world
        faults, seed = world.schedule.events, world.schedule.seed
        return (
            f"seed {seed}: {world.loop.time():.1f} virtual seconds, "
            f"{len(world.faults)} of {len(faults)} faults"
        )

    def finish(self, broken: Broken | None) -> None:
        """Clear the line from the terminal."""
        if self._is_shown:
            self._is_shown = False
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
