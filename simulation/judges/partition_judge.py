"""The promises of partitions (P1 to P18) and of metadata records (M14, P5 to P23) as a judge."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from broker.replication.fetching.fetcher import Fetcher
from broker.replication.fetching.followed import Followed
from simulation.judges.judge import Judge
from simulation.world.invariants import require

if TYPE_CHECKING:
    from broker.replication.partition.partition import Partition
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife


class PartitionJudge(Judge):
    """Runs the checks of the world's promises, which clients and faults use, too."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._promises = world.promises
        self._broken: list[str] = []

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hook into the place that every Fetch response to a follower passes."""
        take_over = Fetcher._take_over

        def taken(fetcher: Fetcher, key: Any, followed: Followed, data: Any, *more: Any) -> Any:
            appended = take_over(fetcher, key, followed, data, *more)
            diverging, one = data.diverging_epoch, followed.partition
            if diverging.epoch >= 0 and one.log.failure is None:
                self._look_at_cut(one, diverging.epoch, diverging.end_offset)
            return appended

        with mock.patch.object(Fetcher, "_take_over", taken):
            yield

    def _look_at_cut(self, one: Partition, epoch: int, end_offset: int) -> None:
        """Check a truncation (P17): the leader's log has nothing of that epoch, or an earlier one,
        from `end_offset` on. So no later record or epoch may remain here."""
        log = one.log
        known = any(entry.epoch <= epoch for entry in log.epochs.entries)
        later = [entry for entry in log.epochs.entries if entry.epoch > epoch] if known else []
        if later or log.log_end_offset > max(end_offset, log.log_start_offset):
            self._broken.append(
                f"P17: {one.topic}-{one.index} on {one.node_id} parts from its leader's log at "
                f"{end_offset} in epoch {epoch}; cut to {log.log_end_offset} it has {later}"
            )

    def after(self, life: NodeLife) -> None:
        """Run all checks of `judges.partitions`."""
        require(not self._broken, self._broken[0] if self._broken else "")
        self._promises.after(life)

    def ending(self, life: NodeLife) -> None:
        """Enter records that leaders have shown until now as committed."""
        self._promises.ending(life)

    def over(self, life: NodeLife, *, lossy: bool) -> None:
        """Enter a life's end, and the records that may be lost by it."""
        self._promises.over(life, lossy=lossy)

    def unsettled(self) -> str | None:
        """Return a partition without leader or full ISR, or whose backlog is not yet replicated
        (P26)."""
        what = self._promises.convergence.out_of_sync() or self._promises.convergence.backlog()
        return None if what is None else f"P26: {what}"

    def missing(self) -> str | None:
        """Return a replica that does not have all records yet (P26)."""
        what = self._promises.convergence.whole()
        return None if what is None else f"P26: {what}"

    def at_end(self) -> None:
        """Check that replicas are equal byte by byte (P4)."""
        self._promises.compare_replicas()
