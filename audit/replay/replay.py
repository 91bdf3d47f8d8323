"""The replay: records in, state changed, checks asked, elections and events told.

`Replay.batch` is the only way in. Partition changes take the short way (`_change`): look up the
partition, look up the transition, add. Everything else goes through `audit.replay.apply`.

Only what was committed together counts: the records of a metadata transaction (KIP-868) wait for
its end, and are dropped when it is aborted. After a hole in the log, or a batch that cannot be
trusted, partitions and brokers are uncertain until a record says all about them; checks that
compare with what was before stay silent about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from audit.checks.base import (
    BatchEnd,
    BrokerChange,
    Check,
    Difference,
    Replacement,
)
from audit.decoding.batches import Batch, Row
from audit.decoding.records import CHANGE_TYPE, KEY_AT, KEY_END, Delta, DeltaCache
from audit.findings.finding import Complaint
from audit.findings.sink import Sink
from audit.replay import apply
from audit.replay.statistics import Statistics
from audit.replay.transitions import Transition, Transitions
from audit.state.cluster import Partition, World, partition_key
from audit.state.elections import BrokerEvent, Election, ElectionKind, LeaderChange, election_cause
from audit.state.shapes import NO_LEADER, Shape, ShapeKey, describe, merged
from protocol.errors import ApiError, ProtocolError
from protocol.metadata import PartitionRecord, decode_record


class Replay:
    """One replay of one interval, or of one shard of its partitions.

    Shard 0 also speaks for everything that is not a partition.
    """

    def __init__(
        self,
        world: World,
        checks: Sequence[Check],
        sink: Sink,
        *,
        shard: int = 0,
        shards: int = 1,
        history: bool = False,
    ) -> None:
        self.world = world
        self.sink = sink
        self.statistics = Statistics(world)
        self.shard, self.shards = shard, shards
        self.history = history
        self.loading = False
        self.uncertain_brokers: set[int] | None = None
        """Brokers known again since a hole; None while there was none."""
        self.offset = -1
        self.timestamp_ms = -1
        self._checks = {
            name: [c for c in checks if getattr(type(c), name) is not getattr(Check, name)]
            for name in (
                "on_record_error",
                "on_replacement",
                "on_election",
                "on_broker",
                "on_batch_end",
                "on_snapshot",
            )
        }
        self._transitions = Transitions(world, checks)
        self._deltas = DeltaCache(world.shapes.forget_transitions)
        self._waiting: list[Row] | None = None
        self._changed: list[Partition] = []
        self._fenced: set[int] = set()
        self._events: dict[int, BrokerEvent] | None = None
        self._rows: Sequence[Row] = ()

    # --- batches ------------------------------------------------------------------------------

    def batch(self, batch: Batch, rows: Sequence[Row]) -> None:
        """Replay one batch of metadata records."""
        self.timestamp_ms = batch.header.max_timestamp
        self.statistics.batches += 1
        self.statistics.records += len(rows)
        self._rows, self._events = rows, None
        self._apply_rows(rows)
        self._end_batch()

    def _apply_rows(self, rows: Iterable[Row]) -> None:
        partitions = self.world.partitions
        for row in rows:
            value = row[3] or b""
            if len(value) > KEY_END and value[1] == CHANGE_TYPE and self._waiting is None:
                partition = partitions.get(value[KEY_AT:KEY_END])
                if partition is not None and partition.certain:
                    self._change(partition, value, row[0])
                    continue
            self._other(row, value)

    def _change(self, partition: Partition, value: bytes, offset: int) -> None:
        try:
            delta = self._deltas.get(value)
        except ProtocolError as error:
            self._record_error(offset, str(error), orphan=False)
            partition.certain = False
            return
        before = partition.shape
        move: Transition | None = before.transitions.get(delta)
        if move is None:
            move = self._transitions.make(before, delta)
        partition.shape = move.after
        partition.partition_epoch += 1
        if move.names_leader:
            partition.leader_epoch += 1
        statistics = self.statistics
        statistics.series.isr += move.isr_growth
        statistics.series.elr += move.elr_growth
        if move.grown:
            statistics.isr_expands += 1
            self._changed.append(partition)
        if move.shrunk:
            statistics.isr_shrinks += 1
        if not move.quiet:
            self._loud(partition, before, move, delta, offset)
        if self.history:
            self._tell_history(partition, "PartitionChangeRecord", offset, move.elected, delta)
        partition.offset = offset

    def _loud(
        self, partition: Partition, before: Shape, move: Transition, delta: Delta, offset: int
    ) -> None:
        self.statistics.changed(partition, self.timestamp_ms)
        self.statistics.series.leaderless += move.after.leaderless - before.leaderless
        old, new = before.key, move.after.key
        if old.leader != new.leader:
            self._leader_moved(partition, old, new, move.elected, delta, offset)
        if move.reassigns:
            self._tell_reassignment(partition, old, new, offset)
        for check, message in move.broken:
            self._complain(
                check,
                Complaint(
                    f"{partition.topic.name}-{partition.index}: {message}",
                    before={
                        "offset": partition.offset,
                        **describe(
                            old,
                            partition.leader_epoch - move.names_leader,
                            partition.partition_epoch - 1,
                        ),
                    },
                    after={"offset": offset, **self._described(partition)},
                    topic=partition.topic.name,
                    partition=partition.index,
                    offset=offset,
                ),
            )

    def _other(self, row: Row, value: bytes) -> None:
        """Any record that is no change of a certain partition."""
        offset = row[0]
        try:
            record, _ = decode_record(value)
        except (ProtocolError, ApiError) as error:
            self._record_error(offset, str(error), orphan=False)
            return
        name = type(record).__name__
        if name.endswith("TransactionRecord"):
            self._transaction(name)
            return
        if self._waiting is not None:
            self._waiting.append(row)
            return
        self.offset = offset
        if not self.loading:
            types = self.statistics.record_types
            types[name] = types.get(name, 0) + 1
        try:
            apply.apply(self, record)
        except apply.Orphan as error:
            if not self.in_doubt:
                self._record_error(offset, str(error), orphan=True)

    def _transaction(self, name: str) -> None:
        waiting, self._waiting = self._waiting, None
        if name.startswith("Begin"):
            self._waiting = []
        elif name.startswith("End") and waiting:
            self._rows = [*self._rows, *waiting]
            self._apply_rows(waiting)

    def _end_batch(self) -> None:
        if self._waiting is not None:
            return
        self.statistics.series.point(self.timestamp_ms)
        if self._changed or self._fenced:
            end = BatchEnd(self.world, self._changed, frozenset(self._fenced))
            if not self.loading and self.uncertain_brokers is None:
                self._ask("on_batch_end", end)
            self._changed, self._fenced = [], set()

    # --- holes ---------------------------------------------------------------------------------

    @property
    def in_doubt(self) -> bool:
        """Whether something is missing before this point of the log."""
        return self.uncertain_brokers is not None

    def doubt(self) -> None:
        """Records are missing or unreadable here."""
        self.uncertain_brokers = set()
        self._waiting = None
        for partition in self.world.each_partition():
            partition.certain = False

    # --- partitions ----------------------------------------------------------------------------

    def is_mine(self, index: int, topic_id: bytes) -> bool:
        return (index + topic_id[-1] + 7 * topic_id[-2]) % self.shards == self.shard

    def add_partition(self, record: PartitionRecord) -> None:
        """A PartitionRecord: a new partition, one out of a snapshot, or a second word about one."""
        if not self.is_mine(record.partition_id, record.topic_id):
            return
        topic = self.world.topics.get(record.topic_id)
        if topic is None:
            if not self.in_doubt:
                raise apply.Orphan(f"no topic has the id of partition {record.partition_id}")
            topic = apply.topic_without_name(self.world, record.topic_id)
        shape = self.world.shapes.get(apply.shape_of(record), topic.min_isr)
        key = partition_key(record.partition_id, record.topic_id)
        known = self.world.partitions.get(key)
        if known is not None:
            self._replace(known, shape, record)
            return
        partition = Partition(
            topic, record.partition_id, shape, record.leader_epoch, record.partition_epoch
        )
        self.world.partitions[key] = topic.partitions[record.partition_id] = partition
        self.statistics.enter(partition, self.timestamp_ms, fresh=not self.loading)
        if not self.loading:
            partition.offset = self.offset
            self._judge_whole(partition, None)
            self._tell_leadership(partition, None, "created")
            self.known(partition, "PartitionRecord")

    def known(self, partition: Partition, record: str) -> None:
        """The first row of a partition's history."""
        if self.history:
            self._tell_history(partition, record, self.offset, None, None)

    def _replace(self, partition: Partition, shape: Shape, record: PartitionRecord) -> None:
        before = partition.shape.key
        if partition.certain and not self.loading:
            self._ask(
                "on_replacement",
                Replacement(
                    partition, before, shape.key, record.leader_epoch, record.partition_epoch
                ),
            )
        self.statistics.series.add(before, -1)
        partition.shape = shape
        partition.leader_epoch = record.leader_epoch
        partition.partition_epoch = record.partition_epoch
        partition.certain = True
        self.statistics.series.add(shape.key, 1)
        self.statistics.changed(partition, self.timestamp_ms)
        self._judge_whole(partition, before)
        partition.offset = self.offset
        if before.leader != shape.key.leader:
            self._tell_leadership(partition, before.leader, "replaced")

    def _judge_whole(self, partition: Partition, before: ShapeKey | None) -> None:
        for check, message in self._transitions.judge(before, partition.shape):
            self._complain(
                check,
                Complaint(
                    f"{partition.topic.name}-{partition.index}: {message}",
                    before=None if before is None else {"offset": partition.offset},
                    after={"offset": self.offset, **self._described(partition)},
                    topic=partition.topic.name,
                    partition=partition.index,
                ),
            )
        self._changed.append(partition)

    def change_uncertain(self, key: bytes, topic_id: bytes, index: int, delta: Delta) -> None:
        """A change to a partition that is not known, or not for certain."""
        partition = self.world.partitions.get(key)
        if partition is None:
            if self.is_mine(index, topic_id):
                raise apply.Orphan(f"partition {index}, which it changes, does not exist")
            return
        before = partition.shape
        after = self.world.shapes.get(merged(before.key, delta), before.min_isr)
        self.statistics.series.add(before.key, -1)
        self.statistics.series.add(after.key, 1)
        partition.shape = after
        partition.partition_epoch += 1
        if delta.leader >= 0 and delta.leader != before.key.leader:
            partition.leader_epoch += 1
            kind = self._transitions.make(before, delta).elected
            self._leader_moved(partition, None, after.key, kind, delta, self.offset)
        self.statistics.changed(partition, self.timestamp_ms)
        partition.offset = self.offset

    def reshape(self, partition: Partition, key: ShapeKey, min_isr: int) -> None:
        """The partition changed by something that is no partition record."""
        before = partition.shape
        partition.shape = self.world.shapes.get(key, min_isr)
        self.statistics.series.add(before.key, -1)
        self.statistics.series.add(key, 1)
        self.statistics.changed(partition, self.timestamp_ms, counted=not self.loading)
        if self.history and key != before.key:
            self._tell_history(partition, "ClearElrRecord", self.offset, None, None)

    def remove_partition(self, partition: Partition) -> None:
        self.statistics.leave(partition, self.timestamp_ms)
        self._tell_leadership(partition, partition.shape.key.leader, "deleted")

    # --- what is told --------------------------------------------------------------------------

    def _leader_moved(
        self,
        partition: Partition,
        old: ShapeKey | None,
        new: ShapeKey,
        kind: ElectionKind | None,
        delta: Delta,
        offset: int,
    ) -> None:
        if kind is None or new.leader == NO_LEADER:
            self._tell_leadership(partition, None if old is None else old.leader, "lost", offset)
            return
        topic = partition.topic.name
        cause = "unknown"
        if old is not None:
            events = self._batch_events()
            cause = election_cause(self.world, events, old, new, delta, kind, topic)
        election = Election(
            offset,
            self.timestamp_ms,
            topic,
            partition.index,
            kind,
            None if old is None else old.leader,
            new.leader,
            partition.leader_epoch,
            cause,
        )
        counts, causes = self.statistics.elections, self.statistics.causes
        counts[kind] = counts.get(kind, 0) + 1
        causes[cause] = causes.get(cause, 0) + 1
        self.sink.election(election)
        self._ask("on_election", election)

    def _batch_events(self) -> dict[int, BrokerEvent]:
        """What the batch does to brokers: Kafka writes the elections before the fencing."""
        if self._events is None:
            self._events = {}
            for row in self._rows:
                value = row[3] or b""
                if len(value) > 2 and value[1] in apply.BROKER_RECORD_TYPES:
                    event = apply.broker_event(value)
                    if event is not None:
                        self._events[event[0]] = event[1]
        return self._events

    def _described(self, partition: Partition) -> dict[str, Any]:
        shape = partition.shape.key
        return describe(shape, partition.leader_epoch, partition.partition_epoch)

    def _tell_leadership(
        self, partition: Partition, before: int | None, why: str, offset: int | None = None
    ) -> None:
        self.sink.leadership(
            self.offset if offset is None else offset,
            self.timestamp_ms,
            partition,
            before,
            why,
        )

    def _tell_reassignment(
        self, partition: Partition, old: ShapeKey, new: ShapeKey, offset: int
    ) -> None:
        busy_before, busy = old.adding or old.removing, new.adding or new.removing
        step = "changed" if busy and busy_before else "began" if busy else "ended"
        if step == "ended" and set(old.adding) and not set(old.adding) & set(new.replicas):
            step = "cancelled"
        self.tell(
            "reassignment",
            {
                "offset": offset,
                "topic": partition.topic.name,
                "partition": partition.index,
                "step": step,
                "replicas": list(new.replicas),
                "adding": list(new.adding),
                "removing": list(new.removing),
            },
            offset,
        )

    def _tell_history(
        self,
        partition: Partition,
        record: str,
        offset: int,
        kind: ElectionKind | None,
        delta: Delta | None,
    ) -> None:
        cause = delta.cause if delta is not None and kind is not None else None
        self.sink.history(offset, self.timestamp_ms, partition, record, kind, cause or None)

    def tell(self, kind: str, body: dict[str, Any], offset: int | None = None) -> None:
        """An event for the tables; `body` becomes JSON."""
        at = self.offset if offset is None else offset
        self.sink.event(kind, at, self.timestamp_ms, body)

    def broker_changed(self, change: BrokerChange) -> None:
        was_fenced = change.before is not None and change.before.fenced
        if change.after is not None and change.after.fenced and not was_fenced:
            self._fenced.add(change.id)
        if self.uncertain_brokers is not None:
            doubtful = change.id not in self.uncertain_brokers
            if change.event is BrokerEvent.REGISTERED:
                self.uncertain_brokers.add(change.id)
            if doubtful:
                return
        if self.shard == 0 and not self.loading:
            self._ask("on_broker", change)

    def leader_change(self, change: LeaderChange, timestamp_ms: int) -> None:
        """A control record says who leads the quorum."""
        if self.shard == 0:
            self.offset, self.timestamp_ms = change.offset, timestamp_ms
            self.sink.event("quorum", change.offset, timestamp_ms, change._asdict())

    def snapshot_differs(self, differences: Sequence[Difference]) -> None:
        self._ask("on_snapshot", differences)

    def _record_error(self, offset: int, reason: str, *, orphan: bool) -> None:
        self.offset = offset
        if self.shard == 0 or orphan:
            self._ask("on_record_error", reason, orphan)

    def _ask(self, hook: str, *arguments: Any) -> None:
        for check in self._checks[hook]:
            ask: Callable[..., Iterable[Complaint]] = getattr(check, hook)
            for complaint in ask(*arguments):
                self._complain(check, complaint)

    def _complain(self, check: Check, complaint: Complaint) -> None:
        self.sink.finding(
            complaint.finding(check.name, check.severity, self.offset, self.timestamp_ms)
        )
