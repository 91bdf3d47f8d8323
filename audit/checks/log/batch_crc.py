"""Every batch has the CRC of its bytes, and between batches stands nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import BatchPlace, Check, DamagePlace
from audit.decoding.batches import DamageKind
from audit.findings.finding import Complaint


class BatchCrc(Check):
    name = "batch-crc"

    def on_batch(self, place: BatchPlace) -> Iterable[Complaint]:
        if not place.batch.crc_ok:
            header = place.batch.header
            yield Complaint(
                f"the batch of offsets {header.base_offset} to {header.last_offset} at position "
                f"{place.batch.position} of {place.path} does not have the CRC it says: its "
                "bytes changed after it was written",
                after={"position": place.batch.position, "size_bytes": header.size_bytes},
                offset=header.base_offset,
            )

    def on_damage(self, place: DamagePlace) -> Iterable[Complaint]:
        if place.kind == DamageKind.GARBAGE:
            yield Complaint(
                f"{place.size_bytes} bytes from position {place.position} of {place.path} on are "
                f"no batch; the last readable offset before them is {place.after_offset}",
                after={"position": place.position, "size_bytes": place.size_bytes},
                offset=place.after_offset + 1,
            )
