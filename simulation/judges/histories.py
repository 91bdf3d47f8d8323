"""Histories of clients against the committed records: nothing acknowledged is missing, nothing is
there twice, out of order, or after a refusal (H1-H9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.judges.client_history import broken_rules
from simulation.judges.judge import Judge
from simulation.world.invariants import require

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld

LEAST_ACKED = 3


class HistoryJudge(Judge):
    """Compares the ledgers of the clients with the committed records at the end of the run."""

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world

    def unsettled(self) -> str | None:
        """Return a violation while too few writes succeed in the quiet phase (P26), unless no topic
        is left: a late request may delete the last one (seed 9486)."""
        load, exists = self._world.load, self._world.promises.exists
        acked = 0 if load is None else load.acked - self._world.acked_before_quiet
        if acked >= LEAST_ACKED:
            return None
        if load is not None and not any(exists(one.topic_id) for one in load.ledgers.partitions):
            return None
        return f"P26: only {acked} writes are acknowledged since all is quiet"

    def at_end(self) -> None:
        """Check the whole ledger, and the whole history."""
        load = self._world.load
        require(load is not None, "H9: there are no clients")
        assert load is not None
        load.judge()
        promises = self._world.promises
        without = promises.given_up | promises.may_shrink
        for found in broken_rules(load.history, without):
            require(False, f"{found.rule.split()[0]}: {found.message}: {'; '.join(found.examples)}")
