"""The protocols of a run for judges: they look, and change nothing."""

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
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import SimCluster
    from simulation.world.loop import VirtualLoop
    from simulation.world.store import SimStore


class JudgedLedgers(Protocol):
    """Ledgers of the partitions that clients use."""

    @property
    def partitions(self) -> Sequence[PartitionLedger]: ...


class JudgedLoad(Protocol):
    """Requests and responses of a run's clients."""

    @property
    def acked(self) -> int:
        """The number of acknowledged writes."""

    @property
    def ledgers(self) -> JudgedLedgers:
        """The ledgers of the partitions that clients use."""

    @property
    def history(self) -> Sequence[Saw]: ...

    @property
    def listed(self) -> list[Listed]: ...

    @property
    def groups(self) -> Mapping[str, GroupTruth]: ...

    def judge(self) -> None:
        """Compare every ledger with the committed records. Raises: Violation for a difference."""


class JudgedWorld(Protocol):
    """One run, such as `simulation.swarm.SwarmWorld`."""

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
        """Changes of nodes since the last check of the judges."""

    @property
    def promises(self) -> Promises:
        """The committed records, as the partitions' judge has seen them."""

    @property
    def load(self) -> JudgedLoad | None:
        """The clients; None before they work."""

    @property
    def busy(self) -> Set[int]:
        """Ids of nodes that an event acts on."""

    @property
    def acked_before_quiet(self) -> int:
        """The number of acknowledged writes when the quiet phase began."""

    @property
    def unregistered(self) -> Set[int]:
        """Ids of brokers that an operator has ever unregistered."""
