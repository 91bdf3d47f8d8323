"""With min ISR replicas in the ISR nobody else may be elected cleanly: ELR and LastKnownELR are
empty (P9, KIP-966).

A min ISR that is changed by itself writes ClearElrRecord, so the rule is asked where a record
changes the partition.
"""

from __future__ import annotations

from audit.checks.base import Check, Facts
from audit.state.shapes import ShapeKey


class ElrCleared(Check):
    name = "elr-cleared"

    def on_shape(self, before: ShapeKey | None, after: ShapeKey, facts: Facts) -> str | None:
        if not after.elr and not after.last_known:
            return None
        if len(after.isr) < facts.effective_min_isr:
            return None
        return (
            f"the ISR {list(after.isr)} has min ISR ({facts.effective_min_isr}), yet ELR is "
            f"{list(after.elr)} and LastKnownELR {list(after.last_known)}"
        )
