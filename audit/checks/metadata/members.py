"""ISR and ELR have no member in common, and only replicas as members (P9)."""

from __future__ import annotations

from audit.checks.base import Facts, ShapeCheck
from audit.state.shapes import ShapeKey


class Members(ShapeCheck):
    name = "isr-elr-members"

    def on_shape(self, before: ShapeKey | None, after: ShapeKey, facts: Facts) -> str | None:
        both = sorted(set(after.isr) & set(after.elr))
        if both:
            return f"{both} are in ISR {list(after.isr)} and ELR {list(after.elr)} at once"
        strangers = sorted({*after.isr, *after.elr} - set(after.replicas))
        if strangers:
            return (
                f"{strangers} are in ISR {list(after.isr)} or ELR {list(after.elr)}, but not among "
                f"the replicas {list(after.replicas)}"
            )
        repeated = len(set(after.isr)) < len(after.isr)
        return f"the ISR {list(after.isr)} names a replica twice" if repeated else None
