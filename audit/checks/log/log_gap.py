"""Offsets are dense: each batch begins at the end offset of the one before it (P18)."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import BatchCheck, BatchContext, MissingCheck
from audit.findings.finding import Complaint


class LogGap(BatchCheck, MissingCheck):
    name = "log-gap"

    def on_missing(self, first: int, last: int) -> Iterable[Complaint]:
        yield Complaint(
            f"offsets {first} to {last} are missing before the snapshot that contains them",
            before={"end_offset": first},
            after={"snapshot_end_offset": last + 1},
        )

    def on_batch(self, context: BatchContext) -> Iterable[Complaint]:
        base = context.batch.header.base_offset
        expected = context.expected_offset
        if expected is None or base == expected:
            return
        if base > expected:
            what = f"offsets {expected} to {base - 1} are missing"
        else:
            what = f"offsets {base} to {expected - 1} stand in the log twice"
        yield Complaint(
            f"{what}: the batch before ends at {expected - 1}, the next in {context.path} begins "
            f"at {base}",
            before={"end_offset": expected},
            after={"base_offset": base},
            offset=min(base, expected),
        )
