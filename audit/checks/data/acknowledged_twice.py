"""A record that was sent once is in the log once (H4)."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.data.base import DataCheck, PartitionView
from audit.findings.finding import Complaint


class AcknowledgedTwice(DataCheck):
    name = "acknowledged-twice"

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        places: dict[int, int] = {}
        for offset, value in sorted(view.reference.values.items()):
            first = places.setdefault(value, offset)
            if first != offset:
                yield Complaint(
                    f"value {value} stands in {view.work.topic}-{view.work.partition} at offset "
                    f"{first} and again at {offset}",
                    before={"offset": first},
                    after={"offset": offset},
                    offset=offset,
                )
