"""The leader epochs of a replica are those of the metadata (P18).

An epoch in a log had a leader, is not later than the partition's current epoch, begins at the
offset in the checkpoint, and never decreases.

If the broker did not stop cleanly, its checkpoint may lack the last epochs of the log, or contain
epochs that were truncated. The metadata may also have been copied before the log. Epochs before one
that log and checkpoint have in common were in the checkpoint when that one was added, so they are
checked. So is the start offset of an epoch, because its leader set it once.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.data.base import DataCheck, PartitionView, Replica
from audit.findings.finding import Complaint
from audit.state.shapes import NO_LEADER


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
        for offset, batch in sorted(replica.batches.items()):
            if batch.epoch == last:
                continue
            if batch.epoch < last:
                yield Complaint(
                    f"the leader epoch goes back from {last} to {batch.epoch} in the log of broker "
                    f"{replica.broker}",
                    offset=offset,
                )
            last = max(last, batch.epoch)
            if work.leader_epoch is not None and batch.epoch > work.leader_epoch:
                if replica.files.at_rest:
                    yield Complaint(
                        f"broker {replica.broker} has a batch of leader epoch {batch.epoch}, but "
                        f"the metadata only knows epochs up to {work.leader_epoch}",
                        offset=offset,
                    )
            elif (work.leader_epochs or {}).get(batch.epoch) == NO_LEADER:
                yield Complaint(
                    f"broker {replica.broker} has a batch of leader epoch {batch.epoch}, in which "
                    "the partition had no leader",
                    offset=offset,
                )

    @staticmethod
    def _checkpoint(view: PartitionView, replica: Replica) -> Iterable[Complaint]:
        """Check the epochs of the log against the checkpoint.

        An epoch in the checkpoint without a batch in the log is allowed: its leader may have
        written nothing.
        """
        entries = replica.files.epochs
        if entries is None or view.work.compacted:
            return
        log_start = replica.log_start
        starts = {epoch: max(start, log_start) for epoch, start in entries}
        first: dict[int, int] = {}
        for offset, batch in sorted(replica.batches.items()):
            if batch.next_offset > log_start and batch.epoch >= 0:
                first.setdefault(batch.epoch, max(offset, log_start))
        agreed = max((epoch for epoch in first if starts.get(epoch) == first[epoch]), default=-1)
        for epoch, offset in first.items():
            if epoch not in starts and (epoch < agreed or replica.files.at_rest):
                yield Complaint(
                    f"the leader epoch checkpoint of broker {replica.broker} lacks epoch {epoch}, "
                    f"which begins at offset {offset}",
                    after={"checkpoint": [list(entry) for entry in entries]},
                    offset=offset,
                )
            elif starts.get(epoch, offset) != offset:
                yield Complaint(
                    f"in the leader epoch checkpoint of broker {replica.broker}, epoch {epoch} "
                    f"begins at offset {starts[epoch]}, but its first batch is at {offset}",
                    offset=offset,
                )
