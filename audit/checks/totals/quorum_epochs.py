"""An epoch of the quorum has one leader (M1, M9).

The whole log is checked at once, because a snapshot may separate the two records.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.totals.base import Totals, TotalsCheck
from audit.findings.finding import Complaint, Severity
from audit.state.elections import LeaderChange


class QuorumEpochs(TotalsCheck):
    name = "one-quorum-leader-per-epoch"
    severity = Severity.ERROR

    def on_totals(self, totals: Totals) -> Iterable[Complaint]:
        first: dict[int, LeaderChange] = {}
        for change in sorted(totals.quorum, key=lambda c: c.offset):
            before = first.setdefault(change.epoch, change)
            if before.leader != change.leader:
                yield Complaint(
                    f"quorum epoch {change.epoch} has two leaders: node {before.leader} since "
                    f"offset {before.offset} and node {change.leader} since offset {change.offset}",
                    before=before._asdict(),
                    after=change._asdict(),
                    offset=change.offset,
                )
