"""Records of one client in one partition are in the order of their sends (H8)."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.data.base import DataCheck, PartitionView
from audit.findings.finding import Complaint
from audit.inputs.replicas import AcknowledgedSend


class AcknowledgedOrder(DataCheck):
    name = "acknowledged-order"

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        last: dict[int, AcknowledgedSend] = {}
        for sent in sorted(view.work.sent, key=lambda s: (s.process, s.order)):
            before = last.get(sent.process)
            if before is not None and sent.offset <= before.offset:
                yield Complaint(
                    f"client {sent.process} sent {before.value} before {sent.value}, but in "
                    f"{view.work.topic}-{view.work.partition} they stand at {before.offset} and "
                    f"{sent.offset}",
                    before=before._asdict(),
                    after=sent._asdict(),
                    offset=sent.offset,
                )
            last[sent.process] = sent
