"""The log ends at the end of a batch.

A crash during an append leaves an incomplete last batch, which the node removes at its next start.
No action is necessary, so this is an informational finding. Inside the log it is an error.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import DamageCheck, DamageContext
from audit.decoding.batches import DamageKind
from audit.findings.finding import Complaint, Severity


class TruncatedTail(DamageCheck):
    name = "truncated-tail"
    severity = Severity.INFO

    def on_damage(self, context: DamageContext) -> Iterable[Complaint]:
        if context.kind == DamageKind.CUT:
            where = "the log ends" if context.at_end else "a segment inside the log ends"
            yield Complaint(
                f"{where} in the middle of a batch: {context.size_bytes} bytes from position "
                f"{context.position} of {context.path} on are the begin of a batch whose rest is "
                f"missing; the last whole batch ends at offset {context.after_offset}",
                after={"position": context.position, "size_bytes": context.size_bytes},
                offset=context.after_offset + 1,
                severity=None if context.at_end else Severity.ERROR,
            )
