"""Every batch has the CRC of its bytes, and there are no other bytes between batches."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import BatchCheck, BatchContext, DamageCheck, DamageContext
from audit.decoding.batches import DamageKind
from audit.findings.finding import Complaint


class BatchCrc(BatchCheck, DamageCheck):
    name = "batch-crc"

    def on_batch(self, context: BatchContext) -> Iterable[Complaint]:
        if not context.batch.crc_ok:
            header = context.batch.header
            yield Complaint(
                f"the batch of offsets {header.base_offset} to {header.last_offset} at position "
                f"{context.batch.position} of {context.path} has a wrong CRC: its bytes changed "
                "after it was written",
                after={"position": context.batch.position, "size_bytes": header.size_bytes},
                offset=header.base_offset,
            )

    def on_damage(self, context: DamageContext) -> Iterable[Complaint]:
        if context.kind == DamageKind.GARBAGE:
            yield Complaint(
                f"{context.size_bytes} bytes from position {context.position} of {context.path} on "
                f"are not a batch; the last readable offset before them is {context.after_offset}",
                after={"position": context.position, "size_bytes": context.size_bytes},
                offset=context.after_offset + 1,
            )
