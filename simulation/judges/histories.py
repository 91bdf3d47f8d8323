"""Histories of clients against what is there: nothing acknowledged is missing, nothing is there
twice, nothing is out of order, nothing that was refused is there (H1-H9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.judges.client_history import broken_rules
from simulation.judges.judge import Judge
from simulation.world.invariants import require

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld

LEAST_ACKED = 3


class HistoryJudge(Judge):
    """The ledgers of the clients, in the end, against the records that were committed."""

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world

    def unsettled(self) -> str | None:
        """P26: in the quiet phase writes succeed, if there is a topic left: a request that comes
        late may delete the last one (seed 9486)."""
        load, exists = self._world.load, self._world.promises.exists
        acked = 0 if load is None else load.acked - self._world.acked_before_quiet
        if acked >= LEAST_ACKED:
            return None
        if load is not None and not any(exists(one.topic_id) for one in load.partitions):
            return None
        return f"P26: only {acked} writes are acknowledged since all is quiet"

    def at_end(self) -> None:
        """The whole ledger, and the whole history."""
        load = self._world.load
        require(load is not None, "H9: there are no clients")
        assert load is not None
        load.judge()
        promises = self._world.promises
        without = promises.given_up | promises.may_shrink
        for found in broken_rules(load.history, without):
            require(False, f"{found.rule.split()[0]}: {found.message}: {'; '.join(found.examples)}")
