"""The log ends where a batch ends.

A cut last batch is what a crash in the middle of an append leaves. It was never acknowledged if
the node flushed before it answered, so this is a warning, except inside the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import Check, DamagePlace
from audit.decoding.batches import DamageKind
from audit.findings.finding import Complaint, Severity


class TruncatedTail(Check):
    name = "truncated-tail"
    severity = Severity.WARNING

    def on_damage(self, place: DamagePlace) -> Iterable[Complaint]:
        if place.kind == DamageKind.CUT:
            where = "the log ends" if place.at_end else "a segment inside the log ends"
            yield Complaint(
                f"{where} in the middle of a batch: {place.size_bytes} bytes from position "
                f"{place.position} of {place.path} on are the begin of a batch whose rest is "
                f"missing; the last whole batch ends at offset {place.after_offset}",
                after={"position": place.position, "size_bytes": place.size_bytes},
                offset=place.after_offset + 1,
                severity=None if place.at_end else Severity.ERROR,
            )
