"""Records that replicas show below their high watermarks (P1, P4, P6, P12).

If a leader showed a record, every replica shows the same record there from then on. A high
watermark passes only records that the whole maximal ISR has, and only at min ISR (P12). Every shown
record has its epoch in leader-epoch-checkpoint (P18).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Set
from typing import NamedTuple

from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from protocol.batch.header import parse_header
from protocol.batch.records import read_records
from simulation.judges.committed import PartitionTruth, Passed, batches_of, keyed_records
from simulation.judges.compacted import Keyed
from simulation.judges.election_truth import min_isr
from simulation.judges.leader_hints import Views
from simulation.judges.metadata import MetadataTruth
from simulation.world.invariants import Violation, require
from storage.log.checkpoints import LEADER_EPOCH_CHECKPOINT, decode_epochs
from storage.log.log import Log

TAKEOVER_S = 0.05
"""Seconds that a broker may take to apply a metadata change."""


class ReplicaState(NamedTuple):
    """The state of a replica whose change is judged."""

    role: ReplicaRole
    leader_epoch: int
    high_watermark: int
    end_offset: int
    isr: frozenset[int]
    maximal_isr: frozenset[int]
    partition_epoch: int
    start_offset: int

    @classmethod
    def of(cls, one: Partition) -> ReplicaState:
        log = one.log
        return cls(
            one.role,
            one.leader_epoch,
            log.high_watermark,
            log.log_end_offset,
            one.isr,
            one.maximal_isr,
            one.partition_epoch,
            log.log_start_offset,
        )


class ShownRecords:
    """The judge of shown records.

    Args:
        compacted: topics that keep the newest record of each key.
    """

    def __init__(self, metadata: MetadataTruth, views: Views, compacted: Set[str]) -> None:
        self._metadata = metadata
        self._views = views
        self._compacted = compacted
        self._checked_epochs: dict[Partition, int] = {}
        """The newest epoch that each replica's epoch file was checked for."""

    def judge(
        self,
        where: str,
        one: Partition,
        truth: PartitionTruth,
        old: ReplicaState | None,
        now_s: float,
    ) -> set[int]:
        """Check newly shown records. Returns: their leader epochs."""
        log, mark = one.log, one.log.high_watermark
        begin = max(0 if old is None else old.high_watermark, log.local_log_start_offset)
        if mark <= begin:
            return set()
        shown = self.compare(where, "P4", one.node_id, log, truth, begin, min(mark, truth.end))
        if mark <= truth.end:
            return shown
        if one.is_leader:
            self._may_show(where, one, truth, old, now_s)
        else:
            # A node that resumes may apply several changes at once: between them it led. The check
            # of the next leader shows whether it has the records shown then (P1, P2).
            epochs = range(-1 if old is None else old.leader_epoch, one.leader_epoch + 1)
            led = any(truth.elected.get(epoch) == one.node_id for epoch in epochs)
            require(led, f"P12: {where} follows and is the first to show {mark}")
        for batch, whole in batches_of(log, truth.end, mark):
            truth.end = batch[1]
            shown.add(batch[2])
            if one.topic in self._compacted:
                for record in read_records(whole):
                    keyed = Keyed(record.key or b"", record.value)
                    truth.keys.add(record.offset, keyed)
                    truth.times[record.offset] = record.timestamp
                    truth.keys.holds(one.node_id, {record.offset: keyed})
                continue
            truth.batches[batch[0]] = batch
            truth.sequences.committed(where, parse_header(whole))
            for record in read_records(whole):
                truth.values[record.offset] = record.value or b""
                truth.times[record.offset] = record.timestamp
        return shown

    def judge_epochs(self, where: str, one: Partition, shown: set[int]) -> None:
        """Check the epoch file on the disk, as another process would read it, for newly shown
        records of these leader epochs."""
        if shown <= {self._checked_epochs.get(one, -1)}:
            return
        log = one.log
        path = posixpath.join(log.directory, LEADER_EPOCH_CHECKPOINT)
        file = log.files.read(path) if log.files.exists(path) else b"0\n0\n"
        saved = {entry.epoch for entry in decode_epochs(file)}
        require(shown <= saved, f"P18: {where} shows {shown}, its epoch file has {saved}")
        self._checked_epochs[one] = max(shown)

    def _may_show(
        self,
        where: str,
        one: Partition,
        truth: PartitionTruth,
        old: ReplicaState | None,
        now_s: float,
    ) -> None:
        mark = one.log.high_watermark
        # A broker uses the metadata that it knows; one that applies a change may be in the middle
        # of it.
        images = self._views.since(one.node_id, now_s - TAKEOVER_S) or [self._metadata.image]
        least = min(min_isr(image, one.topic) for image in images)
        before = images[0].topics.partition(one.topic_id, one.index)
        known = -1 if before is None else before.partition_epoch
        now = (one.isr, one.maximal_isr, len(one.replicas))
        states = [now, *_passed(one, truth, old, known)]
        wrong = [_objection(truth, mark, least, state) for state in states]
        if None not in wrong:
            raise Violation(f"P12: {where}: high watermark {mark}{wrong[0]}")

    def compare(
        self,
        where: str,
        law: str,
        broker_id: int,
        log: Log,
        truth: PartitionTruth,
        begin: int,
        end: int,
    ) -> set[int]:
        """Compare a log with the committed records. Returns: the leader epochs of its batches."""
        epochs: set[int] = set()
        if log.topic in self._compacted:
            batches = list(batches_of(log, begin, end))
            found = keyed_records(batches, begin, end)
            truth.keys.holds(broker_id, found)
            problem = truth.keys.problem(found, begin, end)
            if problem is None and begin == log.log_start_offset and end >= truth.end:
                problem = truth.keys.revived(found, broker_id)
            require(problem is None, f"{law}: {where}: {problem}")
            return {batch[2] for batch, _ in batches}
        for batch, _ in batches_of(log, begin, end) if begin < end else ():
            if truth.batches.get(batch[0]) != batch:
                raise Violation(
                    f"{law}: {where} has {batch}, committed is {truth.batches.get(batch[0])}"
                )
            epochs.add(batch[2])
        return epochs


def _passed(
    one: Partition, truth: PartitionTruth, old: ReplicaState | None, known: int
) -> Iterator[Passed]:
    """Yield ISR, maximal ISR and number of replicas in the states of a leader since the last
    check.

    A broker that applies several changes at once passes all of them, one by one. One of them
    may be a reassigned partition that should have one replica for a moment. It may have known
    the first state before, and have waited for its metadata, which may also bring another
    leader epoch of its own. `known` is the partition epoch in its metadata before.
    """
    if old is None or old.partition_epoch == one.partition_epoch:
        return
    if old.role is ReplicaRole.LEADER and (
        old.leader_epoch == one.leader_epoch or known < old.partition_epoch
    ):
        yield old.isr, old.maximal_isr, truth.replicas.get(old.partition_epoch, len(one.replicas))
    for epoch in range(old.partition_epoch + 1, one.partition_epoch):
        members = truth.members.get(epoch, frozenset())
        yield members, members, truth.replicas.get(epoch, len(one.replicas))


def _objection(truth: PartitionTruth, mark: int, least: int, state: Passed) -> str | None:
    isr, maximal, replicas = state
    if len(isr) < min(least, replicas):
        return f" with the ISR {sorted(isr)}"
    for member in maximal:
        # A leader may learn of a fetch after the follower's disk is gone.
        had = max(truth.had.get(member, 0), truth.had_before.get(member, 0))
        if had < mark:
            return f", {member} has {had}"
    return None
