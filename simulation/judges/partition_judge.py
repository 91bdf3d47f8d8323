"""The promises of partitions (P1 to P18) and of metadata records (M14, P5 to P23) as a judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.judges.judge import Judge

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife


class PartitionJudge(Judge):
    """Asks the world's promises, which clients and faults look at, too."""

    changes_only = True

    def __init__(self, world: JudgedWorld) -> None:
        self._promises = world.promises

    def after(self, life: NodeLife) -> None:
        """All laws of `judges.partitions`."""
        self._promises.after(life)

    def over(self, life: NodeLife, *, lossy: bool) -> None:
        """What may be lost now is told to the laws."""
        self._promises.over(life, lossy=lossy)

    def unsettled(self) -> str | None:
        """P26: every partition has a leader and all its replicas in the ISR."""
        what = self._promises.out_of_sync()
        return None if what is None else f"P26: {what}"

    def missing(self) -> str | None:
        """P26: every replica has everything."""
        what = self._promises.whole()
        return None if what is None else f"P26: {what}"

    def at_end(self) -> None:
        """P4: replicas are equal byte by byte."""
        self._promises.compare_replicas()
