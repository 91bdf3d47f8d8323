"""How long partitions had no leader, and which have none at the end."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.totals import Totals, TotalsCheck
from audit.findings import Complaint, Severity


class Leaderless(TotalsCheck):
    name = "leaderless"

    def on_totals(self, totals: Totals) -> Iterable[Complaint]:
        for one in totals.leaderless:
            yield one.complaint("had no leader")
        left = totals.end.get("leaderless", 0)
        if left:
            yield Complaint(
                f"{left} partitions have no leader where the log ends",
                after={"leaderless": left},
                offset=totals.end_offset,
                severity=Severity.WARNING,
            )
