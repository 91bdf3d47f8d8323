"""A replica's segments contain whole batches with correct CRCs."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.data.base import DataCheck, PartitionView
from audit.findings.finding import Complaint


class ReplicaDamage(DataCheck):
    name = "replica-damage"

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        for replica in view.replicas:
            for complaint in replica.damage:
                where = f"broker {replica.broker}: {complaint.message}"
                yield complaint._replace(message=where)
