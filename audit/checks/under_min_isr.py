"""How long partitions had fewer in-sync replicas than acks=all needs."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.totals import Totals, TotalsCheck, seconds
from audit.findings import Complaint


class UnderMinIsr(TotalsCheck):
    name = "under-min-isr"

    def on_totals(self, totals: Totals) -> Iterable[Complaint]:
        for one in totals.under_min_isr:
            yield Complaint(
                f"{one.topic}-{one.partition} was under min ISR for {seconds(one.total_ms)} in "
                f"{one.episodes} episodes",
                after=one._asdict(),
                topic=one.topic,
                partition=one.partition,
            )
