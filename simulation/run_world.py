"""Shell: The protocol of a run as faults and targets see it, and of what they may do to it.

It stands below them, and `simulation.swarm` above: it plays the events, and is what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from simulation.judges.world import JudgedWorld

if TYPE_CHECKING:
    from simulation.clients.load import Load
    from simulation.operator import Operator
    from simulation.world.cluster import End, Machine, NodeLife
    from simulation.world.links import Trouble


class RunWorld(JudgedWorld, Protocol):
    """One run; `simulation.swarm.SwarmWorld` is one."""

    heard_s: float
    """From when on no session ends because a controller was silent."""

    @property
    def controllers(self) -> Sequence[Machine]: ...

    @property
    def brokers(self) -> Sequence[Machine]: ...

    @property
    def load(self) -> Load | None:
        """The clients, from when on they work."""

    @property
    def operator(self) -> Operator:
        """Who asks admin requests; there when clients work."""

    @property
    def busy(self) -> set[int]:
        """Nodes that an event is being done to."""

    @property
    def swapped(self) -> set[int]:
        """Brokers that run on another disk than their own."""

    @property
    def unregistered(self) -> set[int]:
        """Brokers that an operator has asked to forget, once."""

    def boot(self, machine: Machine) -> NodeLife:
        """Switch a machine on; the judges watch what runs there."""

    async def boot_again(self, machine: Machine) -> None:
        """After a crash; returns when the node is ready."""

    def crash(
        self, machine: Machine, end: End, *, torn: bool = False, dark: Trouble | None = None
    ) -> None:
        """End the life of a machine at this instant; see `Machine.end`."""

    async def stop(self, machine: Machine) -> None:
        """Let a node stop in good order; returns when its life is over, however it ended."""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Look ten times a second."""
