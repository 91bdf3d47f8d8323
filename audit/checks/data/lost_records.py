"""Records that an election has lost for certain: another replica's log still has them.

A leader from outside of ISR and ELR begins its leader epoch at the end of its own log. If another
replica has a batch of an earlier epoch at or beyond that offset, the elected leader lacked it, and
the replica will truncate it. Nothing follows from the opposite: a replica may have done so already.
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
            reached = {r.broker: _reached(r, election.leader_epoch) for r in view.replicas}
            broker = max(reached, key=lambda one: (reached[one], -one))
            count = reached[broker] - begin
            if count <= 0:
                continue
            offsets = "1 offset is" if count == 1 else f"{count} offsets are"
            yield Complaint(
                f"{offsets} lost in {view.work.topic}-{view.work.partition}: the log of broker "
                f"{broker} reaches offset {reached[broker]} in earlier leader epochs, and leader "
                f"epoch {election.leader_epoch} of broker {election.leader} begins at {begin}",
                before={"broker": broker, "end_offset": reached[broker]},
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


def _reached(replica: Replica, leader_epoch: int) -> int:
    """Return the end of the replica's batches of epochs before `leader_epoch`."""
    return max(
        (b.next_offset for b in replica.batches.values() if 0 <= b.epoch < leader_epoch), default=-1
    )
