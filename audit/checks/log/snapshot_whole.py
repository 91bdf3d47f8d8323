"""A snapshot file is complete: correct CRCs, a header, a footer."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import BadSnapshotCheck
from audit.findings.finding import Complaint


class SnapshotWhole(BadSnapshotCheck):
    name = "snapshot-whole"

    def on_bad_snapshot(self, problem: str) -> Iterable[Complaint]:
        yield Complaint(problem)
