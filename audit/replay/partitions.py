"""Partitions of a replay: effects of records on them, with the resulting elections and shapes."""

from __future__ import annotations

from typing import Any

from audit.checks.base import Check, CheckTable, Replacement
from audit.decoding.records import (
    PartitionChange,
    PartitionChangeCache,
    local_logs,
    partition_change,
)
from audit.findings.finding import Complaint
from audit.findings.sink import Elected
from audit.replay.brokers import BatchEvents
from audit.replay.reports import Reports
from audit.replay.scope import Orphan, Scope
from audit.replay.statistics import Statistics
from audit.replay.transitions import Transition, Transitions
from audit.state.cluster import ClusterState, PartitionState, TopicState, partition_key
from audit.state.elections import Election, ElectionKind, election_cause
from audit.state.local_logs import passed_over
from audit.state.shapes import NO_LEADER, Shape, ShapeKey, after_change, describe
from metalog.image.local_log import table_of
from protocol.errors import ProtocolError
from protocol.ids import uuid_to_text
from protocol.metadata import PartitionChangeRecord, PartitionRecord


class Partitions:
    """Applies records about partitions.

    grown: partitions whose ISR gained members, or that were written completely, since the last
    batch end. batch_events: the broker events of the current batch.
    """

    def __init__(
        self,
        cluster: ClusterState,
        scope: Scope,
        statistics: Statistics,
        reports: Reports,
        checks: CheckTable,
    ) -> None:
        self.grown: list[PartitionState] = []
        self.batch_events = BatchEvents()
        self._cluster = cluster
        self._scope = scope
        self._statistics = statistics
        self._reports = reports
        self._transitions = Transitions(cluster, checks.shapes)
        self._change_cache = PartitionChangeCache(cluster.shapes.forget_transitions)

    # --- changes of partitions whose state is certain -----------------------------------------

    def change(self, partition: PartitionState, value: bytes, offset: int) -> None:
        """Apply a framed PartitionChangeRecord: the fast path for nearly all records of a long
        log.
        """
        try:
            change = self._change_cache.get(value)
        except ProtocolError as error:
            self._reports.record_error(offset, str(error), orphan=False)
            partition.certain = False
            return
        before = partition.shape
        transition: Transition | None = before.transitions.get(change)
        if transition is None:
            transition = self._transitions.make(before, change)
        partition.shape = transition.after
        partition.partition_epoch += 1
        if transition.names_leader:
            partition.leader_epoch += 1
        statistics = self._statistics
        statistics.series.isr += transition.isr_growth
        statistics.series.elr += transition.elr_growth
        if transition.grown:
            statistics.isr_expands += 1
            self.grown.append(partition)
        if transition.shrunk:
            statistics.isr_shrinks += 1
        reported = local_logs(value)
        if reported is not None:
            partition.local_logs = reported
        passed = self._passed_over(partition, transition.elected)
        if not transition.quiet:
            self._report_transition(partition, before, transition, change, offset, passed)
        if self._reports.keeps_history:
            elected = None
            if transition.elected is not None:
                elected = Elected(transition.elected, change.cause or None, passed)
            self._reports.history(partition, "PartitionChangeRecord", offset, elected)
        partition.offset = offset

    def _report_transition(
        self,
        partition: PartitionState,
        before: Shape,
        transition: Transition,
        change: PartitionChange,
        offset: int,
        passed: tuple[int, ...],
    ) -> None:
        self._statistics.changed(partition, self._scope.timestamp_ms)
        self._statistics.series.leaderless += transition.after.leaderless - before.leaderless
        old, new = before.key, transition.after.key
        if old.leader != new.leader:
            self._leader_moved(partition, old, new, transition.elected, change, offset, passed)
        if transition.reassigns:
            self._reports.reassignment(partition, old, new, offset)
        for check, message in transition.broken:
            stood = describe(
                old,
                partition.leader_epoch - transition.names_leader,
                partition.partition_epoch - 1,
            )
            self._complain(check, message, partition, {"offset": partition.offset, **stood}, offset)

    # --- other records -------------------------------------------------------------------------

    def add(self, record: PartitionRecord) -> None:
        """Apply a PartitionRecord: a new, a rewritten or a snapshot's partition. Raises Orphan."""
        scope, cluster = self._scope, self._cluster
        if not scope.is_mine(record.partition_id, record.topic_id):
            return
        topic = cluster.topics.get(record.topic_id)
        if topic is None:
            if not scope.in_doubt:
                raise Orphan(f"no topic has the id of partition {record.partition_id}")
            topic = _topic_without_name(cluster, record.topic_id)
        shape = cluster.shapes.get(_shape_of(record), topic.min_isr)
        key = partition_key(record.partition_id, record.topic_id)
        known = cluster.partitions.get(key)
        if known is not None:
            self._replace(known, shape, record)
            return
        partition = PartitionState(
            topic, record.partition_id, shape, record.leader_epoch, record.partition_epoch
        )
        partition.local_logs = table_of(record.local_logs or ())
        cluster.partitions[key] = topic.partitions[record.partition_id] = partition
        self._statistics.enter(partition, scope.timestamp_ms, fresh=not scope.loading)
        if not scope.loading:
            partition.offset = scope.offset
            self._judge_whole(partition, None)
            self._reports.leadership(partition, None, "created")
            self._reports.history(partition, "PartitionRecord", scope.offset)

    def _replace(self, partition: PartitionState, shape: Shape, record: PartitionRecord) -> None:
        scope, statistics = self._scope, self._statistics
        before = partition.shape.key
        if partition.certain and not scope.loading:
            replacement = Replacement(
                partition, before, shape.key, record.leader_epoch, record.partition_epoch
            )
            self._reports.check_replacement(replacement)
        statistics.series.add(before, -1)
        partition.shape = shape
        partition.leader_epoch = record.leader_epoch
        partition.partition_epoch = record.partition_epoch
        partition.local_logs = table_of(record.local_logs or ())
        partition.certain = True
        statistics.series.add(shape.key, 1)
        statistics.changed(partition, scope.timestamp_ms)
        self._judge_whole(partition, before)
        partition.offset = scope.offset
        if before.leader != shape.key.leader:
            self._reports.leadership(partition, before.leader, "replaced")

    def _judge_whole(self, partition: PartitionState, before: ShapeKey | None) -> None:
        stood = None if before is None else {"offset": partition.offset}
        for check, message in self._transitions.judge(before, partition.shape):
            self._complain(check, message, partition, stood, self._scope.offset)
        self.grown.append(partition)

    def change_uncertain(self, record: PartitionChangeRecord) -> None:
        """Apply a change to a partition that is unknown or uncertain. Raises Orphan."""
        scope, statistics = self._scope, self._statistics
        key = partition_key(record.partition_id, record.topic_id)
        partition = self._cluster.partitions.get(key)
        if partition is None:
            if scope.is_mine(record.partition_id, record.topic_id):
                raise Orphan(f"partition {record.partition_id}, which it changes, does not exist")
            return
        change = partition_change(record)
        before = partition.shape
        after = self._cluster.shapes.get(after_change(before.key, change), before.min_isr)
        statistics.series.add(before.key, -1)
        statistics.series.add(after.key, 1)
        partition.shape = after
        partition.partition_epoch += 1
        if record.local_logs is not None:
            partition.local_logs = table_of(record.local_logs)
        if change.leader >= 0 and change.leader != before.key.leader:
            partition.leader_epoch += 1
            kind = self._transitions.make(before, change).elected
            self._leader_moved(partition, None, after.key, kind, change, scope.offset, ())
        statistics.changed(partition, scope.timestamp_ms)
        partition.offset = scope.offset

    def clear_elr(self, partition: PartitionState) -> None:
        key = partition.shape.key
        if key.elr or key.last_known:
            partition.partition_epoch += 1
            cleared = key._replace(elr=(), last_known=())
            self._reshape(partition, cleared, partition.topic.min_isr)
            self._reports.history(partition, "ClearElrRecord", self._scope.offset)
            partition.offset = self._scope.offset

    def set_min_isr(self, topic: TopicState, min_isr: int) -> None:
        topic.min_isr = min_isr
        for partition in topic.partitions.values():
            self._reshape(partition, partition.shape.key, min_isr)

    def _reshape(self, partition: PartitionState, key: ShapeKey, min_isr: int) -> None:
        """Change a partition because of a record that is not about partitions."""
        scope, statistics = self._scope, self._statistics
        before = partition.shape
        partition.shape = self._cluster.shapes.get(key, min_isr)
        statistics.series.add(before.key, -1)
        statistics.series.add(key, 1)
        statistics.changed(partition, scope.timestamp_ms, counted=not scope.loading)

    def remove(self, partition: PartitionState) -> None:
        del self._cluster.partitions[partition_key(partition.index, partition.topic.id)]
        self._statistics.leave(partition, self._scope.timestamp_ms)
        self._reports.leadership(partition, partition.shape.key.leader, "deleted")

    # --- elections and complaints --------------------------------------------------------------

    def _passed_over(self, partition: PartitionState, kind: ElectionKind | None) -> tuple[int, ...]:
        if kind is None or not partition.local_logs:
            return ()
        events = self.batch_events.by_broker()
        return passed_over(self._cluster, events, partition, kind, self._scope.timestamp_ms)

    def _leader_moved(
        self,
        partition: PartitionState,
        old: ShapeKey | None,
        new: ShapeKey,
        kind: ElectionKind | None,
        change: PartitionChange,
        offset: int,
        passed: tuple[int, ...],
    ) -> None:
        """Report an election or a lost leader.

        `old` is None if a gap in the log hides the old leader.
        """
        if kind is None or new.leader == NO_LEADER:
            before = None if old is None else old.leader
            self._reports.leadership(partition, before, "lost", offset)
            return
        topic = partition.topic.name
        cause = "unknown"
        if old is not None:
            events = self.batch_events.by_broker()
            cause = election_cause(self._cluster, events, old, new, change, kind, topic)
        election = Election(
            offset,
            self._scope.timestamp_ms,
            topic,
            partition.index,
            kind,
            None if old is None else old.leader,
            new.leader,
            partition.leader_epoch,
            cause,
            passed,
        )
        self._statistics.count_election(kind, cause)
        self._reports.sink.election(election)
        self._reports.check_election(election)

    def _complain(
        self,
        check: Check,
        message: str,
        partition: PartitionState,
        before: dict[str, Any] | None,
        offset: int,
    ) -> None:
        """Report a rule that a partition breaks since `offset`."""
        now = describe(partition.shape.key, partition.leader_epoch, partition.partition_epoch)
        complaint = Complaint(
            f"{partition.topic.name}-{partition.index}: {message}",
            before=before,
            after={"offset": offset, **now},
            topic=partition.topic.name,
            partition=partition.index,
            offset=offset,
        )
        self._reports.complain(check, complaint)


def _shape_of(record: PartitionRecord) -> ShapeKey:
    return ShapeKey(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known=tuple(record.last_known_elr or ()),
        leader=record.leader,
        recovery=record.leader_recovery_state,
        adding=tuple(record.adding_replicas),
        removing=tuple(record.removing_replicas),
        directories=tuple(record.directories),
    )


def _topic_without_name(cluster: ClusterState, topic_id: bytes) -> TopicState:
    """Create a placeholder for a topic whose record is missing from the log."""
    name = f"id:{uuid_to_text(topic_id)}"
    topic = TopicState(topic_id, name, cluster.min_isr_of(name))
    cluster.topics[topic_id] = cluster.names[name] = topic
    return topic
