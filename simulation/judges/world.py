"""The protocols of a run as judges see it: they look, and change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from simulation.judges.changes import Changes
    from simulation.judges.client_history import Saw
    from simulation.judges.groups import GroupTruth
    from simulation.judges.ledger import PartitionLedger
    from simulation.judges.partitions import Promises
    from simulation.judges.tier_offsets import Listed
    from simulation.shape import Shape
    from simulation.world.cluster import SimCluster
    from simulation.world.loop import VirtualLoop
    from simulation.world.store import SimStore


class JudgedLoad(Protocol):
    """What the clients were told."""

    @property
    def acked(self) -> int:
        """How many writes were acknowledged."""

    @property
    def partitions(self) -> Sequence[PartitionLedger]:
        """Those that clients use."""

    @property
    def history(self) -> Sequence[Saw]: ...

    @property
    def listed(self) -> list[Listed]: ...

    @property
    def groups(self) -> Mapping[str, GroupTruth]: ...

    def judge(self) -> None:
        """Hold every ledger against what was committed. Raises Violation."""


class JudgedWorld(Protocol):
    """One run; `simulation.swarm.SwarmWorld` is one."""

    @property
    def loop(self) -> VirtualLoop: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def cluster(self) -> SimCluster: ...

    @property
    def store(self) -> SimStore:
        """The object store of tiered storage."""

    @property
    def changes(self) -> Changes:
        """What nodes have changed since the judges looked."""

    @property
    def promises(self) -> Promises:
        """What was committed, as the partitions' judge has seen it."""

    @property
    def load(self) -> JudgedLoad | None:
        """The clients, from when on they work."""

    @property
    def busy(self) -> Set[int]:
        """Nodes that an event is being done to."""

    @property
    def acked_before_quiet(self) -> int:
        """How many writes were acknowledged when all became quiet."""

    @property
    def unregistered(self) -> Set[int]:
        """Brokers that an operator has asked to forget, once."""
