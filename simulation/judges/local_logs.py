"""Leaders with enough of the log on local disks (KIP-1303), judged from outside.

The judge sees the log stats that brokers send, in each incarnation (Fetch 19, AlterPartition 4),
and judges by the committed records:

* L1: the stored stats of a replica are those that its broker sent in that incarnation, or unknown.
  New stats are of the registered incarnation; -1 overwrites nothing; without a threshold nothing is
  stored; and a leader forwards only stats that other replicas have sent.
* L2: no replica with enough, or with unknown stats, is passed over for one with too little, unless
  it is about to be fenced (tiered seed 225).
* L3: the order of replicas changes only in a record that was requested to reassign them.
* L4: the response to a report reverts no ISR change.

The wall clock time of an election is that of its record, from the controller's own clock, whatever
that shows.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from broker.replication.partition.effects import Effects
from broker.replication.partition.local_log_reports import report_answered
from broker.replication.partition.partition import Partition
from broker.replication.requests import local_log_reports as requests
from metalog.image.values import ConfigResourceType, ElectedAs
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.fetch import FetchRequest
from protocol.transport.client import Connection
from simulation.judges.judge import Judge
from simulation.shapes.shape import LOCAL_BYTES, LOCAL_MS
from simulation.world.invariants import Key, Violation, require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.replication.partition.isr import IsrProposal
    from metalog.image.values import MetadataImage, PartitionImage
    from simulation.judges.election_laws import Election
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife

FETCH, ALTER = 19, 4
"""The versions that carry the stats of a local log."""
DECIDED_MS = 1_000
"""Longest time between the decision for an election and the timestamp of its record."""
FENCED_S = 2.0
"""Brokers whose sessions expire together are fenced one after the other, and none of them is
elected in place of another (Reason.SESSION_EXPIRED). This takes at most that long."""
LOST = bytes(15) + b"\1"
NO_EPOCH = -1
RESERVED = 100
"""Directory ids below this one name no directory."""
Said = tuple[set[int], set[int]]
"""All first timestamps, and all sizes."""


class PassedOver(NamedTuple):
    """A broker that was passed over in an election for one with less."""

    words: str
    broker_id: int
    broker_epoch: int
    until_s: float


class LocalLogJudge(Judge):
    """Judges the stats, elections and replica lists of tiered partitions."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._truth = world.promises.metadata
        self._static = world.shape.settings
        self._loop = world.loop
        self._broken: list[str] = []
        self._passed_over: list[PassedOver] = []
        self._said: dict[tuple[Key, int, int], Said] = {}
        """The stats sent, by partition, broker and broker epoch."""
        self.counts: dict[str, int] = {"local logs stored": 0, "elections by local logs": 0}
        self._truth.heard.append(self._judge)

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hook into all messages that brokers send, and every response to a report."""
        write, answered = Connection._write, report_answered

        def sent(connection: Connection, message: Any, way: Any) -> int:
            if isinstance(message, FetchRequest) and way.version >= FETCH:
                self._hear_follower(message)
            elif isinstance(message, AlterPartitionRequest) and way.version >= ALTER:
                self._hear_leader(message)
            return write(connection, message, way)

        def taken(one: Partition, report: IsrProposal, *more: Any) -> Effects:
            before = _wanted(one)
            effects = answered(one, report, *more)
            if _wanted(one) != before:
                where = f"L4: {one.topic}-{one.index} on {one.node_id}"
                self._broken.append(f"{where}: a report's answer makes {_wanted(one)} of {before}")
            return effects

        with (
            mock.patch.object(Connection, "_write", sent),
            mock.patch.object(requests, "report_answered", taken),
        ):
            yield

    def after(self, life: NodeLife) -> None:
        """Raise the violations found inside a node's own code, where the judge must not raise."""
        if self._broken:
            raise Violation(self._broken[0])
        if self._passed_over:
            self._look_at_passed_over()

    def at_end(self) -> None:
        """Judge the replicas that were passed over and are still registered and unfenced."""
        self._look_at_passed_over(at_end=True)

    def _look_at_passed_over(self, *, at_end: bool = False) -> None:
        brokers = self._truth.image.cluster.brokers
        left = []
        for one in self._passed_over:
            broker = brokers.get(one.broker_id)
            if broker is None or broker.fenced or broker.epoch != one.broker_epoch:
                continue
            if at_end or self._loop.now_s > one.until_s:
                raise Violation(one.words)
            left.append(one)
        self._passed_over = left

    # --- stats that brokers send ---------------------------------------------------------------

    def _hear_follower(self, message: FetchRequest) -> None:
        sender = message.replica_state
        for topic in message.topics:
            for one in topic.partitions:
                said = self._of((topic.topic_id, one.partition), *_ids(sender))
                said[0].add(one.local_log_start_timestamp)
                said[1].add(one.local_log_size_bytes)

    def _hear_leader(self, message: AlterPartitionRequest) -> None:
        for topic in message.topics:
            for one in topic.partitions:
                for member in one.new_isr_with_epochs:
                    start, size = member.local_log_start_timestamp, member.local_log_size_bytes
                    key = (topic.topic_id, one.partition_index)
                    said = self._said_in(key, member.broker_id, member.broker_epoch)
                    if member.broker_id == message.broker_id:
                        own = self._of(key, member.broker_id, member.broker_epoch)
                        own[0].add(start)
                        own[1].add(size)
                    elif not (start in said[0] and size in said[1]):
                        name = f"{self._truth.topic_names.get(key[0])}-{key[1]}"
                        self._broken.append(
                            f"L1: {name}: {message.broker_id} reports {member.broker_id} in epoch "
                            f"{member.broker_epoch} {start, size}, which said {said}"
                        )

    def _of(self, key: Key, broker_id: int, broker_epoch: int) -> Said:
        return self._said.setdefault((key, broker_id, broker_epoch), ({-1}, {-1}))

    def _said_in(self, key: Key, broker_id: int, broker_epoch: int) -> Said:
        """Return the stats sent in a broker epoch. A broker that does not know its epoch yet sends
        -1, and keeps using that session."""
        known, early = (self._of(key, broker_id, epoch) for epoch in (broker_epoch, NO_EPOCH))
        return known[0] | early[0], known[1] | early[1]

    # --- records ------------------------------------------------------------------------------

    def _judge(self, one: Election, written_ms: int) -> None:
        try:
            _look_at_places(one, self._truth.moves.get((one.topic, one.key[1]), ()))
            reported = getattr(one.record, "local_logs", None)
            if reported is not None and one.new.local_logs != one.old.local_logs:
                self._look_at_table(one)
            if one.new.leader not in (one.old.leader, -1) and one.new.local_logs:
                self._look_at_election(one, written_ms)
        except Violation as violation:
            self._broken.append(str(violation))

    def _look_at_table(self, one: Election) -> None:
        on = any(value > 0 for value in self._thresholds(one.image, one.topic).values())
        require(
            on or not one.new.local_logs,
            f"L1: {one.where}: {one.new.local_logs} are stored without thresholds",
        )
        before = {entry.broker_id: entry for entry in one.old.local_logs.entries}
        for entry in one.new.local_logs.entries:
            broker_id, epoch, (start, size), _ = entry
            old = before.get(broker_id)
            if old == entry:
                continue
            self.counts["local logs stored"] += 1
            broker = one.image.cluster.brokers.get(broker_id)
            said = self._said_in(one.key, broker_id, epoch)
            where = f"L1: {one.where}: {entry} after {old}"
            require(start in said[0] and size in said[1], f"{where}; it said {said}")
            now = None if broker is None else broker.epoch
            require(epoch == now, f"{where}: registered is epoch {now}")
            if old is not None and old.broker_epoch == epoch:
                forgotten = (start < 0 <= old.stats[0]) or (size < 0 <= old.stats[1])
                require(not forgotten, f"{where}: what was known is overwritten")

    def _look_at_election(self, one: Election, written_ms: int) -> None:
        """Judge an election against the replicas that could have been elected as cleanly."""
        thresholds = self._thresholds(one.image, one.topic)
        by_name = (one.topic, one.key[1]) in self._truth.elections.asked
        if by_name or one.kind not in (ElectedAs.ISR, ElectedAs.PREFERRED, ElectedAs.ELR):
            return
        self.counts["elections by local logs"] += 1
        times = (written_ms - DECIDED_MS, written_ms)
        if any(_has_enough(one, one.new.leader, thresholds, at_ms) for at_ms in times):
            return
        others = one.old.elr if one.kind is ElectedAs.ELR else one.new.isr
        for other in others:
            passed = other != one.new.leader and _could_lead(one, other)
            if passed and all(_has_enough(one, other, thresholds, at_ms) for at_ms in times):
                words = (
                    f"L2: {one.where}: {one.new.leader} is elected before {other}; known is "
                    f"{one.new.local_logs}, asked for {thresholds} at {written_ms}"
                )
                epoch = one.image.cluster.brokers[other].epoch
                until_s = self._loop.now_s + FENCED_S
                self._passed_over.append(PassedOver(words, other, epoch, until_s))

    def _thresholds(self, image: MetadataImage, topic: str) -> dict[str, int]:
        """Return the thresholds in force for a topic; those that are off are not above 0."""
        own: Mapping[str, str] = image.configs.get((ConfigResourceType.TOPIC, topic), {})
        common: Mapping[str, str] = image.configs.get((ConfigResourceType.BROKER, ""), {})
        stored = {**self._static, **common, **own}
        return {key: int(stored.get(key, "-1")) for key in (LOCAL_MS, LOCAL_BYTES)}


def _ids(sender: FetchRequest.ReplicaState) -> tuple[int, int]:
    return sender.replica_id, sender.replica_epoch


def _wanted(one: Partition) -> tuple[frozenset[int], frozenset[int], object]:
    """Return the ISR, the maximal ISR, and the proposed ISR."""
    proposed = None if one.proposal is None else one.proposal.broker_ids
    return one.isr, one.maximal_isr, proposed


def _look_at_places(one: Election, asked: object) -> None:
    old, new = one.old, one.new
    same = (old.adding, old.removing) == (new.adding, new.removing)
    if same and old.replicas != new.replicas:
        assert isinstance(asked, (set, tuple))
        # Replicas to be removed come after the requested ones.
        require(
            frozenset(new.replicas).difference(new.removing) in asked,
            f"L3: {one.where}: replicas {new.replicas} after {old.replicas}",
        )


def _could_lead(one: Election, broker_id: int) -> bool:
    """Return whether the broker could surely lead: its directory must be known to exist."""
    broker = one.image.cluster.brokers.get(broker_id)
    if broker is None or broker.fenced or broker.in_controlled_shutdown:
        return False
    if broker_id not in one.new.replicas:
        return False
    directory = one.new.directory_of(broker_id)
    reserved = directory is None or int.from_bytes(directory) < RESERVED
    return directory != LOST and (reserved or directory in broker.directories)


def _has_enough(one: Election, broker_id: int, thresholds: Mapping[str, int], now_ms: int) -> bool:
    """Return whether the broker has enough of the log: unknown stats count as enough, an empty log
    never."""
    broker = one.image.cluster.brokers.get(broker_id)
    entries = [e for e in _table(one.new) if broker and e[:2] == (broker_id, broker.epoch)]
    start, size = entries[0].stats if entries else (-1, -1)
    span_ms, enough = thresholds[LOCAL_MS], thresholds[LOCAL_BYTES]
    if not entries or (span_ms <= 0 and enough <= 0):
        return True
    if size == 0:
        return False
    by_time = span_ms > 0 and (start < 0 or now_ms - start >= span_ms)
    return by_time or (enough > 0 and (size < 0 or size >= enough))


def _table(one: PartitionImage) -> Any:
    return one.local_logs.entries
