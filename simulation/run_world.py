"""Shell: The protocol of a run as faults and targets use it.

`simulation.swarm` stands above them: it plays the events, and passes itself to them as this
protocol.
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
    """One run, such as `simulation.swarm.SwarmWorld`."""

    heard_s: float
    """Virtual time from which on no session expires because a controller was silent."""

    @property
    def controllers(self) -> Sequence[Machine]: ...

    @property
    def brokers(self) -> Sequence[Machine]: ...

    @property
    def load(self) -> Load | None:
        """The clients; None before they work."""

    @property
    def operator(self) -> Operator:
        """The sender of admin requests; exists once clients work."""

    @property
    def busy(self) -> set[int]:
        """Ids of nodes that an event acts on."""

    @property
    def swapped(self) -> set[int]:
        """Ids of brokers that run on another disk than their own."""

    @property
    def unregistered(self) -> set[int]:
        """Ids of brokers that an operator has ever unregistered."""

    def boot(self, machine: Machine) -> NodeLife:
        """Switch a machine on; the judges watch its life."""

    async def boot_again(self, machine: Machine) -> None:
        """Boot a machine after a crash. Returns when the node is ready."""

    def crash(
        self, machine: Machine, end: End, *, torn: bool = False, dark: Trouble | None = None
    ) -> None:
        """End the life of a machine at this instant; see `Machine.end`."""

    async def stop(self, machine: Machine) -> None:
        """Stop a node cleanly. Returns when its life is over, however it ended."""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` returns True, with ten checks a second."""
