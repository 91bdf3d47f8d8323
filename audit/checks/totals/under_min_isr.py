"""Times with fewer in-sync replicas than acks=all needs."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.totals.base import Totals, TotalsCheck
from audit.findings.finding import Complaint


class UnderMinIsr(TotalsCheck):
    name = "under-min-isr"

    def on_totals(self, totals: Totals) -> Iterable[Complaint]:
        for one in totals.under_min_isr:
            yield one.complaint("was under min ISR")
