"""Times without a leader, and partitions without one at the end of the log.

If all brokers that may lead a partition left by a controlled shutdown, the finding is
informational: a clean stop causes it. If one of them was lost, its data may be lost, too: a
warning.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.totals.base import Totals, TotalsCheck
from audit.findings.finding import Complaint, Severity


class Leaderless(TotalsCheck):
    name = "leaderless"

    def on_totals(self, totals: Totals) -> Iterable[Complaint]:
        for one in totals.leaderless:
            yield one.complaint("had no leader")
        stopped = totals.end.get("leaderless_stopped", 0)
        if stopped:
            yield Complaint(
                f"{stopped} partitions have no leader where the log ends: their last replicas "
                "were stopped in good order",
                after={"leaderless": stopped},
                offset=totals.end_offset,
                timestamp_ms=totals.end_timestamp_ms,
            )
        left = totals.end.get("leaderless", 0) - stopped
        if left:
            yield Complaint(
                f"{left} partitions have no leader where the log ends",
                after={"leaderless": left},
                offset=totals.end_offset,
                timestamp_ms=totals.end_timestamp_ms,
                severity=Severity.WARNING,
            )
