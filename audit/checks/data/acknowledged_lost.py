"""An acknowledged record is in the log at its acknowledged offset (H3, H9, P7)."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.data.base import DataCheck, PartitionView
from audit.findings.finding import Complaint

FINDINGS_MAX = 100


class AcknowledgedLost(DataCheck):
    name = "acknowledged-lost"

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        log = view.reference
        places = {value: offset for offset, value in log.values.items()}
        count = 0
        for sent in sorted(view.work.sent, key=lambda s: s.offset):
            if sent.offset < log.start_offset or log.values.get(sent.offset) == sent.value:
                continue
            there = places.get(sent.value)
            if there is not None:
                what = f"it is at offset {there} instead"
            elif sent.offset >= log.end_offset:
                what = f"the log ends at {log.end_offset}"
            elif view.work.compacted:
                continue
            else:
                what = "that offset has other content"
            yield Complaint(
                f"a record of client {sent.process} was acknowledged at offset {sent.offset} of "
                f"{view.work.topic}-{view.work.partition}, but in the log of broker {log.broker} "
                f"{what}",
                before=sent._asdict(),
                after={"broker": log.broker, "end_offset": log.end_offset},
                offset=sent.offset,
            )
            count += 1
            if count == FINDINGS_MAX:
                return
