"""Records that an election has lost for certain: another replica's log still has them.

A leader from outside of ISR and ELR begins its leader epoch at the end of its own log. If another
replica has a batch of an earlier epoch at or beyond that offset, the elected leader lacked it, and
the replica will truncate it. The batch counts unless the current leader has it: that replica may
have been elected since. Nothing follows from the opposite: a replica may have truncated already.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.data.base import DataCheck, PartitionView, Replica
from audit.findings.finding import Complaint, Severity
from audit.planning.partitions import LossyElection


class LostRecords(DataCheck):
    name = "records-lost"
    severity = Severity.WARNING

    def on_partition(self, view: PartitionView) -> Iterable[Complaint]:
        if view.work.compacted:
            return
        for election in view.work.lossy:
            begin = _begin_of(election, view.replicas)
            if begin is None:
                continue
            beyond = {
                r.broker: list(_beyond(r, begin, election.leader_epoch, view.reference))
                for r in view.replicas
            }
            broker = max(beyond, key=lambda one: (sum(beyond[one]), -one))
            count = sum(beyond[broker])
            if not count:
                continue
            offsets = "1 offset is" if count == 1 else f"{count} offsets are"
            reached = begin + count
            yield Complaint(
                f"{offsets} lost in {view.work.topic}-{view.work.partition}: the log of broker "
                f"{broker} reaches offset {reached} in earlier leader epochs, and leader "
                f"epoch {election.leader_epoch} of broker {election.leader} begins at {begin}",
                before={"broker": broker, "end_offset": reached},
                after={
                    "leader": election.leader,
                    "leader_epoch": election.leader_epoch,
                    "begin_offset": begin,
                    "offsets": count,
                },
                offset=election.offset,
                timestamp_ms=election.timestamp_ms,
            )


def _begin_of(election: LossyElection, replicas: Iterable[Replica]) -> int | None:
    """Return the offset at which the election's epoch begins, None if no log shows it."""
    starts = []
    for replica in replicas:
        at = min(
            (o for o, b in replica.batches.items() if b.epoch >= election.leader_epoch),
            default=None,
        )
        if at is not None:
            starts.append(at)
        elif replica.broker == election.leader:
            # The leader has written nothing in this epoch.
            starts.append(replica.end_offset)
    return min(starts, default=None)


def _beyond(replica: Replica, begin: int, leader_epoch: int, reference: Replica) -> Iterable[int]:
    """Yield the numbers of offsets in batches of earlier epochs that the elected leader lacked."""
    for offset, batch in replica.batches.items():
        earlier = 0 <= batch.epoch < leader_epoch and batch.next_offset > begin
        if earlier and reference.batches.get(offset) != batch:
            yield batch.next_offset - max(offset, begin)
