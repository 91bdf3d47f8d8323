"""Every record refers only to objects that earlier records created."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import RecordErrorCheck
from audit.findings.finding import Complaint


class OrphanRecord(RecordErrorCheck):
    name = "record-orphan"

    def on_record_error(self, reason: str, orphan: bool) -> Iterable[Complaint]:
        if orphan:
            yield Complaint(f"the record does not follow from those before it: {reason}")
