"""The leader epochs of a replica are those of the metadata (P18).

An epoch in a log or its checkpoint was led by somebody, is no later than the partition's current
one, begins where the checkpoint says, and never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.data import DataCheck
from audit.data.partition import PartitionView, Replica
from audit.findings import Complaint
from audit.state import NO_LEADER


class LeaderEpochs(DataCheck):
    name = "leader-epochs"

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        for replica in view.replicas:
            yield from self._log(view, replica)
            yield from self._checkpoint(view, replica)

    @staticmethod
    def _log(view: PartitionView, replica: Replica) -> Iterable[Complaint]:
        work = view.work
        last = -1
        for offset, mark in sorted(replica.marks.items()):
            if mark.epoch == last:
                continue
            if mark.epoch < last:
                yield Complaint(
                    f"the leader epoch goes back from {last} to {mark.epoch} in the log of broker "
                    f"{replica.broker}",
                    offset=offset,
                )
            last = max(last, mark.epoch)
            if work.leader_epoch is not None and mark.epoch > work.leader_epoch:
                yield Complaint(
                    f"broker {replica.broker} has a batch of leader epoch {mark.epoch}, but the "
                    f"metadata only knows epochs up to {work.leader_epoch}",
                    offset=offset,
                )
            elif (work.leader_epochs or {}).get(mark.epoch) == NO_LEADER:
                yield Complaint(
                    f"broker {replica.broker} has a batch of leader epoch {mark.epoch}, in which "
                    "the partition had no leader",
                    offset=offset,
                )

    @staticmethod
    def _checkpoint(view: PartitionView, replica: Replica) -> Iterable[Complaint]:
        """Entries may be newer than the first batch of their epoch is on disk, never later."""
        entries = replica.files.epochs
        if entries is None or view.work.compacted:
            return
        starts = dict(entries)
        first: dict[int, int] = {}
        for offset, mark in sorted(replica.marks.items()):
            first.setdefault(mark.epoch, offset)
        for epoch, offset in first.items():
            said = starts.get(epoch)
            if said is None and offset < replica.files.high_watermark:
                yield Complaint(
                    f"the leader epoch checkpoint of broker {replica.broker} lacks epoch {epoch}, "
                    f"which begins at offset {offset}",
                    after={"checkpoint": [list(entry) for entry in entries]},
                    offset=offset,
                )
            elif said is not None and said != offset and offset > replica.start_offset:
                yield Complaint(
                    f"the leader epoch checkpoint of broker {replica.broker} says that epoch "
                    f"{epoch} begins at offset {said}, but its first batch is at {offset}",
                    offset=offset,
                )
