"""ELR and LastKnownELR are empty while the ISR has min ISR members (P9, KIP-966).

While the ISR has min ISR members, no other replica may be elected cleanly. A change of min ISR
alone writes ClearElrRecord, so the rule is checked at records that change the partition.
"""

from __future__ import annotations

from audit.checks.base import Facts, ShapeCheck
from audit.state.shapes import ShapeKey


class ElrCleared(ShapeCheck):
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
