"""Every record can be decoded."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import RecordErrorCheck
from audit.findings.finding import Complaint


class UnreadableRecord(RecordErrorCheck):
    name = "record-unreadable"

    def on_record_error(self, reason: str, orphan: bool) -> Iterable[Complaint]:
        if not orphan:
            yield Complaint(f"the record is unreadable: {reason}")
