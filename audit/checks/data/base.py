"""Checks of the brokers' logs: one partition's replicas beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from audit.findings.finding import Complaint, Severity
from audit.tasks.partition import PartitionView


class DataCheck:
    """A check of one partition's replicas. What it says of them gets their topic and partition."""

    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        return ()
