"""A leader is in the ISR, unless its partition is RECOVERING."""

from __future__ import annotations

from audit.checks.base import Facts, ShapeCheck
from audit.state.shapes import NO_LEADER, RECOVERING, ShapeKey


class LeaderInIsr(ShapeCheck):
    name = "leader-in-isr"

    def on_shape(self, before: ShapeKey | None, after: ShapeKey, facts: Facts) -> str | None:
        if after.leader in after.isr or after.leader == NO_LEADER:
            return None
        if after.recovery == RECOVERING:
            return None
        return f"leader {after.leader} is not in the ISR {list(after.isr)}"
