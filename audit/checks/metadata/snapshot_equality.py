"""A snapshot with the records up to the next snapshot gives the next snapshot (M13).

The audit replays the records with its own replay, so this also compares two implementations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from audit.checks.base import Difference, SnapshotCheck
from audit.findings.finding import Complaint


class SnapshotEquality(SnapshotCheck):
    name = "snapshot-equality"

    def on_snapshot(self, differences: Sequence[Difference]) -> Iterable[Complaint]:
        for difference in differences:
            yield Complaint(
                f"the snapshot differs from the records before it about {difference.what}",
                before=difference.replayed,
                after=difference.snapshot,
                topic=difference.topic,
                partition=difference.partition,
            )
