"""Replicas are equal below the high watermark (P4): the same batches with the same CRCs.

A replica whose broker stopped cleanly reaches its high watermark. If the broker kept running, the
copy of the log may be older than that of the checkpoint, so its end is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.data.base import DataCheck, PartitionView, Replica
from audit.findings.finding import Complaint

DIFFERENCES_MAX = 10


class ReplicasEqual(DataCheck):
    name = "replicas-equal"

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        if view.work.compacted:
            return
        for replica in view.replicas:
            yield from self._reaches_its_high_watermark(view, replica)
            if replica is not view.reference:
                yield from self._compare(view, replica)

    @staticmethod
    def _reaches_its_high_watermark(view: PartitionView, replica: Replica) -> Iterable[Complaint]:
        files = replica.files
        if files.at_rest and replica.end_offset < files.high_watermark:
            yield Complaint(
                f"the log of {view.work.topic}-{view.work.partition} on broker {replica.broker} "
                f"ends at offset {replica.end_offset}, below its high watermark "
                f"{files.high_watermark}",
                before={"high_watermark": files.high_watermark},
                after={"broker": replica.broker, "end_offset": replica.end_offset},
                offset=replica.end_offset,
            )

    @staticmethod
    def _compare(view: PartitionView, other: Replica) -> Iterable[Complaint]:
        mine = view.reference
        committed = min(mine.files.high_watermark, other.files.high_watermark)
        begin = max(mine.start_offset, other.start_offset)
        count = 0
        for offset in sorted(mine.batches.keys() | other.batches.keys()):
            left, right = mine.batches.get(offset), other.batches.get(offset)
            if left == right or not begin <= offset < committed:
                continue
            if None in (left, right) and not (mine.lacks(offset) or other.lacks(offset)):
                continue
            yield Complaint(
                f"{view.work.topic}-{view.work.partition} differs at offset {offset}, below the "
                f"high watermark {committed}: broker {mine.broker} has "
                f"{_shown(left)}, broker {other.broker} {_shown(right)}",
                before={"broker": mine.broker, "batch": left and left._asdict()},
                after={"broker": other.broker, "batch": right and right._asdict()},
                offset=offset,
            )
            count += 1
            if count == DIFFERENCES_MAX:
                return


def _shown(batch: object) -> str:
    return "no batch that begins there" if batch is None else "another batch"
