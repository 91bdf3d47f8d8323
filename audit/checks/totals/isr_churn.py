"""Number of ISR changes.

Many changes with few records of other kinds indicate slow followers, or a session timeout that is
too short.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.totals.base import Totals, TotalsCheck
from audit.findings.finding import Complaint


class IsrChurn(TotalsCheck):
    name = "isr-churn"

    def on_totals(self, totals: Totals) -> Iterable[Complaint]:
        changes = totals.isr_shrinks + totals.isr_expands
        if changes:
            yield Complaint(
                f"ISRs shrank {totals.isr_shrinks} times and grew {totals.isr_expands} times",
                after={"shrinks": totals.isr_shrinks, "expands": totals.isr_expands},
            )
