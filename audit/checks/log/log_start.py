"""A log that begins above offset 0 has a snapshot of the records before it (M12).

A copy of some segments may lack it; then nothing that depends on the missing records is checked.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import StartCheck
from audit.findings.finding import Complaint, Severity


class LogStart(StartCheck):
    name = "log-start"
    severity = Severity.WARNING

    def on_unknown_start(self, start_offset: int) -> Iterable[Complaint]:
        yield Complaint(
            f"the log begins at offset {start_offset} and no snapshot covers earlier offsets: the "
            "state of an object is checked only after a record that contains all of it",
            after={"start_offset": start_offset},
        )
