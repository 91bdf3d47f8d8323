"""The promises of replication, judged from outside after every event.

`Promises` sees all nodes at once, unlike any node. After each callback that ran in a node's life it
compares the node's state with the records committed before, anywhere:

* If a leader showed a record below its high watermark, every replica shows the same record there
  from then on (P1, P4, P6). Every new leader has all of them.
* Every running member of the ISR has them, too (P2). Exempt are machines that lost unflushed
  records, or run on another disk than the controllers have on record (F22).
* A high watermark passes only records that the whole maximal ISR has, and only at min ISR (P12).
* If the leader's ISR and the controllers' differ, the leader's is the wider one (P3).
* A replica that joins an ISR has all committed records and has reached the leader epoch's start
  (P13).
* No replica truncates below a high watermark (P17), and logs are valid (P18): every shown record
  has its epoch in leader-epoch-checkpoint.

The laws of the metadata records are in `judges.metadata`.

Topics in `given_up` are those whose operator waived promises (unclean elections). They are judged
only by the laws of every log and every metadata record.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from metalog.image.values import (
    ConfigResourceType,
    PartitionImage,
    TopicImage,
)
from protocol.batch.header import crc_ok, parse_header
from protocol.batch.records import read_records
from simulation.judges.changes import Changes
from simulation.judges.committed import PartitionTruth, Passed, batches_of, keyed_records
from simulation.judges.compacted import Keyed, problem_between
from simulation.judges.convergence import Convergence
from simulation.judges.election_truth import min_isr
from simulation.judges.leader_hints import Views
from simulation.judges.metadata import MetadataTruth
from simulation.judges.producers import LastBatches
from simulation.shapes.shape import AGGRESSIVE
from simulation.world.invariants import Key, Violation, require
from storage.log.checkpoints import LEADER_EPOCH_CHECKPOINT, decode_epochs
from storage.log.log import Log

if TYPE_CHECKING:
    from simulation.world.cluster import NodeLife

OFFSETS_TOPIC = "__consumer_offsets"
HISTORY = 150
LATELY = 1000
"""Records that may have been committed while a response was on its way."""
TAKEOVER_S = 0.05
"""Seconds that a broker may take to apply a metadata change."""
State = tuple[ReplicaRole, int, int, int, frozenset[int], frozenset[int], int, int]


def replica_state(one: Partition) -> State:
    """Return the state of a replica whose change is judged."""
    log = one.log
    return (
        one.role,
        one.leader_epoch,
        log.high_watermark,
        log.log_end_offset,
        one.isr,
        one.maximal_isr,
        one.partition_epoch,
        log.log_start_offset,
    )


class Promises:
    """The committed records and the checks against them. Set `NodeLife.watch` to call `after`, and
    report ends of lives with `over`.

    `changes` are those since the last call of `after`; None: all partitions are checked.
    """

    def __init__(
        self,
        given_up: Iterable[str] = (),
        may_shrink: Iterable[str] = (),
        changes: Changes | None = None,
        static: Mapping[str, str] | None = None,
        now_s: Callable[[], float] = lambda: 0.0,
        compacted: Iterable[str] = (),
    ) -> None:
        self.given_up = set(given_up)
        """Topics without these promises; an operator's choice adds to them while the
        cluster runs."""
        self.may_shrink = set(may_shrink)
        """Topics whose old records may be deleted."""
        self.let_go: set[str] = set()
        """Those of which an operator has chosen so while the cluster ran."""
        self.unreadable: set[str] = set()
        """Topics that have lost records with the metadata of the tier: see `lost_end`."""
        self.may_vanish: set[str] = set()
        """Topics whose deletion was requested."""
        self.compacted = frozenset(compacted) | {OFFSETS_TOPIC}
        """Topics that keep the newest record of each key."""
        self._changes = changes
        self.metadata = MetadataTruth(
            joined=self._joined,
            changed=self._replaced,
            removed=self._removed,
            ended=lambda one: one in self._ended,
            given_up=self.given_up,
            static=static,
            now_s=now_s,
        )
        self.partitions: dict[Key, PartitionTruth] = {}
        self.lossy: dict[int, int] = {}
        """Brokers that lost unflushed records, and their broker epoch at that time; until they are
        back in every ISR."""
        self.unclean: dict[int, tuple[int, set[Key]]] = {}
        """Brokers whose process ended: their broker epoch at that time, and the partitions in whose
        ISR they are not back."""
        self.lowering = 0
        """Number of requests in flight that may lower the number of survivable losses."""
        self.views = Views()
        self.convergence = Convergence(self.metadata, self.partitions, self.given_up, self.replica)
        self.checks = 0
        self.starts = 0
        """Number of changes of any log's start."""
        self._now_s = 0.0
        self._history: deque[tuple[float, NodeLife, str, int, State] | str] = deque(maxlen=HISTORY)
        self._ended: set[bytes] = set()
        """Incarnation ids of processes that are over."""
        self._awaited: dict[int, set[Key]] = {}
        self._marks: dict[NodeLife, int] = {}
        self._seen: dict[Partition, State] = {}
        self._told: dict[Partition, int] = {}
        self._open: dict[int, dict[Key, Partition]] = {}
        # partitions of brokers that are about to end uncleanly
        self._failed: dict[int, set[Key]] = {}

    @property
    def history(self) -> list[str]:
        """Recent changes of replicas as text lines."""
        return [one if isinstance(one, str) else _told(*one) for one in self._history]

    # --- lives --------------------------------------------------------------------------------

    def after(self, life: NodeLife) -> None:
        """Check the state of a node after code ran in its life."""
        node = life.node
        if node is None:
            return
        quorum = node.quorum
        if quorum is not None and quorum.is_started:
            mark = quorum.high_watermark
            known = self._marks.get(life, 0)
            if mark is not None and mark > known:
                self._marks[life] = mark
                self.metadata.committed(str(life), quorum.log, known, mark)
        if node.loader is not None:
            self.views.follow(life, node.loader)
        if node.broker is None:
            return
        seen, changes, replicas = self._seen, self._changes, node.broker.replicas
        for one in replicas if changes is None else changes.among(replicas):
            state = replica_state(one)
            old = seen.get(one)
            if state != old:
                seen[one] = state
                self._look(life, one, old, state)

    def ending(self, life: NodeLife) -> None:
        """Enter records that a life's leaders showed before it ended at a file call, inside a
        callback.

        They may have been acknowledged, and `after` is not called for this life again.
        """
        node = life.node
        if node is None or node.broker is None:
            return
        for one in node.broker.replicas:
            self._look_at_last(life, one, self._seen.get(one))

    def over(self, life: NodeLife, *, lossy: bool) -> None:
        """Enter the end of a life; `lossy`: unflushed data may be lost."""
        node_id = life.machine.node_id
        if life.node is not None:
            self._ended.add(life.node._incarnation_id)
        self._open.pop(node_id, None)
        self._failed.pop(node_id, None)
        broker = self.metadata.image.cluster.brokers.get(node_id)
        if broker is None:
            return
        awaited = {
            (topic.id, index)
            for topic in self.metadata.image.topics.by_id.values()
            for index, one in topic.partitions.items()
            if node_id in one.replicas and not self._stands_alone(topic.name, one)
        }
        self.unclean[node_id] = broker.epoch, set(awaited)
        if lossy:
            self.lossy[node_id] = broker.epoch
            self._awaited[node_id] = awaited
            if not self._awaited[node_id]:
                del self.lossy[node_id]

    def disk_swapped(self, broker_id: int) -> None:
        """Enter another disk of a machine that is off: its replicas are read when it runs."""
        for truth in self.partitions.values():
            had = truth.had.pop(broker_id, 0)
            truth.had_before[broker_id] = max(had, truth.had_before.get(broker_id, 0))
            truth.keys.ends(broker_id, 0)
        epoch, awaited = self.unclean.get(broker_id, (0, set()))
        if self.with_elr and awaited:
            self.lossy[broker_id], self._awaited[broker_id] = epoch, set(awaited)

    def lost_end(self, key: Key, end: int) -> None:
        """All replicas of a partition have lost what stood from `end` on, while their brokers were
        off: it was never committed for those who come."""
        truth = self.partitions[key]
        truth.end = min(truth.end, end)
        for table in (truth.batches, truth.values, truth.times):
            for offset in [one for one in table if one >= end]:
                del table[offset]
        for had in (truth.had, truth.had_before):
            for broker_id in had:
                had[broker_id] = min(had[broker_id], end)

    def spares(self, broker_id: int, away: Iterable[int] = ()) -> bool:
        """Return whether every partition keeps an ISR member that has lost nothing while this
        broker, and those that are `away`, are out of action."""
        gone = {broker_id, *self.lossy, *away}
        return all(
            set(one.isr) - gone
            or broker_id not in one.replicas
            or self._stands_alone(topic.name, one)
            for topic in self.metadata.image.topics.by_id.values()
            for one in topic.partitions.values()
        )

    def exists(self, topic_id: bytes) -> bool:
        """Return whether the controllers have this topic: else its name may belong to
        another one."""
        return topic_id in self.metadata.image.topics.by_id

    @property
    def with_elr(self) -> bool:
        """True if the cluster has eligible leader replicas enabled."""
        return self.metadata.image.elr_enabled

    def tolerates(self, broker_id: int, *, lossy: bool, away: Iterable[int] = ()) -> bool:
        """Return whether KIP-966 lets every partition survive one more unclean, or `lossy`, end
        (P7).

        Eligible replicas alone survive min ISR - 1 unclean ends at once; a replica that is back in
        the ISR does not count any more. Any number may end if an election waits for the longest log
        of all that may have every record; min ISR - 1 of them may lose records. `away` count as
        replicas that lost records.
        """
        image = self.metadata.image
        if self.lowering:
            return False
        for topic in image.topics.by_id.values():
            for index, one in topic.partitions.items():
                if broker_id not in one.replicas or self._stands_alone(topic.name, one):
                    continue
                if one.adding or one.removing:
                    return False  # it may end with fewer replicas, and so a smaller minimum
                key = (topic.id, index)
                floor = self.metadata.eligible.of[key].floor
                gone = {b for b, (_, awaited) in self.unclean.items() if key in awaited}
                gone |= {b for b, failed in self._failed.items() if key in failed}
                if len(gone | {broker_id}) < floor:
                    continue
                lost = {b for b in self.lossy if key in self._awaited.get(b, ())}
                lost |= {*away} & {*one.replicas} | ({broker_id} if lossy else set())
                if lost and not (self._compares(key, topic.name) and len(lost) < floor):
                    return False
        return True

    def _compares(self, key: Key, topic: str) -> bool:
        """Return whether an election takes the longest log of all replicas that may have every
        record."""
        eligible, image = self.metadata.eligible, self.metadata.image
        return eligible.of[key].whole and eligible.strategy(image, topic) != AGGRESSIVE

    def _stands_alone(self, topic: str, one: PartitionImage) -> bool:
        """Return whether the partition needs no other replica after a lossy power cut: it has no
        promises, or its records are flushed before they are shown."""
        return topic in self.given_up or (len(one.replicas) == 1 and self.flushed(topic))

    def flushed(self, topic: str) -> bool:
        """Return whether the topic flushes each record before it is shown."""
        return self.configs(topic).get("flush.messages") == "1"

    def configs(self, topic: str) -> Mapping[str, str]:
        """Return the topic's own committed configuration."""
        key = (ConfigResourceType.TOPIC, topic)
        found: Mapping[str, str] = self.metadata.image.configs.get(key, {})
        return found

    def shows(self, partition: str, part: bytes) -> bool:
        """Return whether one of the last committed records of a partition contains these bytes."""
        truth = next((one for one in self.partitions.values() if one.name == partition), None)
        if truth is None:
            return False
        last = [*islice(reversed(truth.values.values()), LATELY)]
        last += [one.value or b"" for one in islice(reversed(truth.keys.records.values()), LATELY)]
        return any(part in value for value in last)

    def leader_epoch_at(self, broker_id: int, key: Key) -> int:
        """Return the newest leader epoch that a broker's own replica has applied; -1 without a
        replica."""
        one = self.replica(broker_id, key)
        return -1 if one is None else one.leader_epoch

    def replica(self, broker_id: int, key: Key) -> Partition | None:
        """Return a broker's own replica as of the last check; None without an open one."""
        return self._open.get(broker_id, {}).get(key)

    # --- one partition on one broker ----------------------------------------------------------

    def _look(self, life: NodeLife, one: Partition, old: State | None, state: State) -> None:
        # This runs ten thousand times in a run: texts are built only for violations.
        self.checks += 1
        self._now_s = life.machine.cluster.loop.time()
        key, node_id = (one.topic_id, one.index), life.machine.node_id
        truth = self.partitions.get(key)
        if truth is None:
            truth = self.partitions[key] = PartitionTruth(f"{one.topic}-{one.index}")
        if one.role not in (ReplicaRole.LEADER, ReplicaRole.FOLLOWER):
            if one.role is ReplicaRole.OFFLINE:
                self._look_at_last(life, one, old)
                self._failed.setdefault(node_id, set()).add(key)
            self._open.get(node_id, {}).pop(key, None)
            return
        where = f"{life}, {truth.name}"
        self._history.append((self._now_s, life, truth.name, one.leader_id, state))
        mine = self._open.setdefault(node_id, {})
        if mine.get(key) is not one:
            mine[key] = one
            old = None
        one.validate()
        end = one.log.log_end_offset
        if one.topic in self.given_up:
            self._look_at_log(where, one, truth, old)
            return
        if old is None:
            self._scan(where, one.log)
            truth.had[node_id] = max(truth.had.get(node_id, 0), end)
            truth.keys.ends(node_id, end)
        elif end < old[3]:
            # The end is compared with the offset seen here before, not with the replica's own
            # state. An empty log has shown nothing: if its leader begins inside a batch, it begins
            # again there (seed 6260).
            is_shown = old[2] > old[7]
            require(
                end >= old[2] or not is_shown,
                f"P17: {where} was cut to {end}, it had shown {old[2]}",
            )
            self._scan(where, one.log)
            later = [entry for entry in one.log.epochs.entries if entry.start_offset >= end]
            require(
                one.is_leader or not later, f"P18: {where} was cut to {end} and still has {later}"
            )
            truth.had[node_id] = end
            truth.keys.ends(node_id, end)
        else:
            truth.had[node_id] = max(truth.had.get(node_id, 0), end)
        self._look_at_start(where, one, truth)
        if one.is_leader:
            self._look_at_leader(where, one, truth, old)
        shown = self._look_at_committed(where, one, truth, old)
        if old is not None and not shown <= {self._told.get(one, -1)}:
            self._look_at_epochs(where, one, shown)
        self._look_at_members(key, truth)

    def _look_at_last(self, life: NodeLife, one: Partition, old: State | None) -> None:
        """Check the records that a leader showed in the callback in which its log or process
        failed."""
        key = (one.topic_id, one.index)
        led = old is not None and old[0] is ReplicaRole.LEADER
        if led and self.replica(one.node_id, key) is one and one.topic not in self.given_up:
            truth, end = self.partitions[key], one.log.log_end_offset
            truth.had[one.node_id] = max(truth.had.get(one.node_id, 0), end)
            self._look_at_committed(f"{life}, {truth.name}", one, truth, old)

    def _look_at_log(
        self, where: str, one: Partition, truth: PartitionTruth, old: State | None
    ) -> None:
        """Check the laws that hold whatever an operator has waived."""
        cut = old is None or one.log.log_end_offset < old[3]
        if cut:
            self._scan(where, one.log)
        if one.topic in self.compacted:
            begin = 0 if cut or old is None else old[3]
            truth.keys.see(_keyed(one.log, max(begin, one.log.local_log_start_offset)))
        if one.is_leader:
            first = truth.leaders.setdefault(one.leader_epoch, one.node_id)
            require(first == one.node_id, f"P1: {where}: {first} led epoch {one.leader_epoch}, too")

    def _scan(self, where: str, log: Log) -> None:
        """Check a log that was opened or cut (P18, T2)."""
        first_of: dict[int, int] = {}
        last = LastBatches()
        for (base, _, epoch, _), whole in batches_of(
            log, log.local_log_start_offset, log.log_end_offset
        ):
            first_of.setdefault(epoch, max(base, log.log_start_offset))
            require(crc_ok(whole, 0, len(whole)), f"P18: {where}: the batch at {base} is damaged")
            last.read(parse_header(whole))
        if log.topic not in self.compacted:
            last.judge(where, log)
        cache = {entry.epoch: entry.start_offset for entry in log.epochs.entries}
        for epoch, base in first_of.items():
            require(
                cache.get(epoch, -1) in range(base + 1),
                f"P18: {where}: epoch {epoch} begins at {base}, cached are {cache}",
            )

    def _look_at_start(self, where: str, one: Partition, truth: PartitionTruth) -> None:
        """Check a new log start: committed records go only if an operator allowed their
        deletion."""
        log = one.log
        known = truth.starts.get(one.node_id, 0)
        if log.log_start_offset == known:
            return
        truth.starts[one.node_id] = log.log_start_offset
        truth.highest_start = max(truth.highest_start, log.log_start_offset)
        self.starts += 1
        begins = f"{where} begins at {log.log_start_offset}"
        require(one.topic in self.may_shrink, f"P6: {begins}, nothing may be deleted")
        require(log.log_start_offset <= truth.end, f"P6: {begins}, committed is {truth.end}")

    def _look_at_leader(
        self, where: str, one: Partition, truth: PartitionTruth, old: State | None
    ) -> None:
        epoch = one.leader_epoch
        newest = epoch >= truth.newest_epoch
        first = truth.leaders.setdefault(epoch, one.node_id)
        if first != one.node_id:
            raise Violation(f"P1: {where}: {first} led epoch {epoch}, too")
        if not newest:
            return
        log = one.log
        if log.log_end_offset < truth.end:
            raise Violation(
                f"P1: {where} leads epoch {epoch}; it ends at {log.log_end_offset}, {truth.end} "
                f"is committed"
            )
        if old is None or old[0] is not ReplicaRole.LEADER or old[1] != epoch:
            begin = log.local_log_start_offset
            self._compare(where, "P1", one.node_id, log, truth, begin, truth.end)
        else:
            self._look_at_proposed(where, one, truth, one.maximal_isr - one.isr - old[5])
        least = min(truth.end, one.leader_epoch_start)
        if log.high_watermark < least and one.high_watermark_settled:
            # P14: from here on it answers requests that need a high watermark.
            raise Violation(
                f"P14: {where}: high watermark {log.high_watermark}, committed is {truth.end}"
            )

    def _look_at_proposed(
        self, where: str, one: Partition, truth: PartitionTruth, members: Iterable[int]
    ) -> None:
        """Check proposed members (P13) at the moment of the proposal: from then on the high
        watermark waits for them."""
        least = max(truth.end, one.leader_epoch_start)
        for member in members:
            other = self.replica(member, (one.topic_id, one.index))
            end = -1 if other is None else other.log.log_end_offset
            require(
                other is None or end >= least,
                f"P13: {where}: {member} is to join the ISR with {end} of {least}",
            )

    def _look_at_committed(
        self, where: str, one: Partition, truth: PartitionTruth, old: State | None
    ) -> set[int]:
        """Check newly shown records. Returns: their leader epochs."""
        log, mark = one.log, one.log.high_watermark
        begin = max(0 if old is None else old[2], log.local_log_start_offset)
        if mark <= begin:
            return set()
        shown = self._compare(where, "P4", one.node_id, log, truth, begin, min(mark, truth.end))
        if mark <= truth.end:
            return shown
        if one.is_leader:
            self._may_show(where, one, truth, mark, old)
        else:
            # A node that resumes may apply several changes at once: between them it led. The check
            # of the next leader shows whether it has the records shown then (P1, P2).
            epochs = range(-1 if old is None else old[1], one.leader_epoch + 1)
            led = any(truth.elected.get(epoch) == one.node_id for epoch in epochs)
            require(led, f"P12: {where} follows and is the first to show {mark}")
        for batch, whole in batches_of(log, truth.end, mark):
            truth.end = batch[1]
            shown.add(batch[2])
            if one.topic in self.compacted:
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

    def _look_at_epochs(self, where: str, one: Partition, shown: set[int]) -> None:
        """Check the epoch file on the disk, as another process would read it, for newly shown
        records."""
        log = one.log
        path = posixpath.join(log.directory, LEADER_EPOCH_CHECKPOINT)
        file = log.files.read(path) if log.files.exists(path) else b"0\n0\n"
        told = {entry.epoch for entry in decode_epochs(file)}
        require(shown <= told, f"P18: {where} shows {shown}, its epoch file has {told}")
        self._told[one] = max(shown)

    def _may_show(
        self, where: str, one: Partition, truth: PartitionTruth, mark: int, old: State | None
    ) -> None:
        # A broker uses the metadata that it knows; one that applies a change may be in the middle
        # of it.
        images = self.views.since(one.node_id, self._now_s - TAKEOVER_S) or [self.metadata.image]
        least = min(min_isr(image, one.topic) for image in images)
        before = images[0].topics.partition(one.topic_id, one.index)
        known = -1 if before is None else before.partition_epoch
        now = (one.isr, one.maximal_isr, len(one.replicas))
        states = [now, *self._passed(one, truth, old, known)]
        wrong = [self._objection(truth, mark, least, state) for state in states]
        if None not in wrong:
            raise Violation(f"P12: {where}: high watermark {mark}{wrong[0]}")

    @staticmethod
    def _passed(
        one: Partition, truth: PartitionTruth, old: State | None, known: int
    ) -> Iterator[Passed]:
        """Yield ISR, maximal ISR and number of replicas in the states of a leader since the last
        check.

        A broker that applies several changes at once passes all of them, one by one. One of them
        may be a reassigned partition that should have one replica for a moment. It may have known
        the first state before, and have waited for its metadata, which may also bring another
        leader epoch of its own. `known` is the partition epoch in its metadata before.
        """
        if old is None or old[6] == one.partition_epoch:
            return
        if old[0] is ReplicaRole.LEADER and (old[1] == one.leader_epoch or known < old[6]):
            yield old[4], old[5], truth.replicas.get(old[6], len(one.replicas))
        for epoch in range(old[6] + 1, one.partition_epoch):
            members = truth.members.get(epoch, frozenset())
            yield members, members, truth.replicas.get(epoch, len(one.replicas))

    @staticmethod
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

    def _compare(
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
        if log.topic in self.compacted:
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

    def _look_at_members(self, key: Key, truth: PartitionTruth) -> None:
        """Check P2 and P3, by the committed metadata."""
        image = self.metadata.image.topics.partition(*key)
        if image is None or truth.name.rpartition("-")[0] in self.given_up:
            return
        for member in (*image.isr, *image.elr):
            if member in self.lossy:
                if self.with_elr:
                    self._look_at_lossy(key, truth, member)
                continue
            one = self.replica(member, key)
            if one is None or one.log.log_end_offset >= truth.end:
                continue
            where = "ISR" if member in image.isr else "ELR"
            require(
                self._on_another_disk(image, member),
                f"P2: {truth.name}: {member} is in the {where} and ends at "
                f"{one.log.log_end_offset}, {truth.end} is committed",
            )
        leader = self.replica(image.leader, key)
        if leader is None or not leader.is_leader or leader.leader_epoch != image.leader_epoch:
            return
        if not leader.maximal_isr.issuperset(image.isr):
            require(
                len(leader.isr) < leader.effective_min_isr,
                f"P3: {truth.name}: ISR {image.isr}, the leader's maximal ISR is "
                f"{sorted(leader.maximal_isr)}",
            )

    def _look_at_lossy(self, key: Key, truth: PartitionTruth, member: int) -> None:
        """Check that a broker that came back is in ISR or ELR only after it joined the ISR again
        (P11)."""
        broker = self.metadata.image.cluster.brokers.get(member)
        came_back = broker is not None and broker.epoch > self.lossy[member]
        require(
            not came_back or key not in self._awaited.get(member, ()),
            f"P11: {truth.name}: {member} came back from an unclean shutdown and counts as clean",
        )

    def _on_another_disk(self, image: PartitionImage, broker_id: int) -> bool:
        """Return whether a broker runs on another disk than on record. Below the metadata level
        with directories, none are on record, and no disk is swapped."""
        broker = self.metadata.image.cluster.brokers.get(broker_id)
        known = () if broker is None else broker.directories
        return bool(known) and image.directory_of(broker_id) not in known

    # --- records ------------------------------------------------------------------------------

    def _joined(self, key: Key, broker_id: int) -> None:
        truth, one = self.partitions.get(key), self.replica(broker_id, key)
        image = self.metadata.image
        ended_in, awaited = self.unclean.get(broker_id, (0, set()))
        if awaited and image.cluster.brokers[broker_id].epoch > ended_in:
            awaited.discard(key)
        lost_in = self.lossy.get(broker_id)
        if lost_in is not None and image.cluster.brokers[broker_id].epoch > lost_in:
            self._back(key, broker_id)
        if truth is None or one is None or broker_id in self.lossy or one.topic in self.given_up:
            return
        partition = image.topics.partition(*key)
        assert partition is not None
        leader = self.replica(partition.leader, key)
        least = truth.end
        if leader is not None and leader.leader_epoch == partition.leader_epoch:
            least = max(least, leader.leader_epoch_start)
        require(
            truth.had.get(broker_id, 0) >= least,
            f"P13: {truth.name}: {broker_id} joins the ISR with {truth.had.get(broker_id, 0)} of "
            f"{least}",
        )

    def _back(self, key: Key, broker_id: int) -> None:
        awaited = self._awaited.get(broker_id, set())
        awaited.discard(key)
        if not awaited:
            self.lossy.pop(broker_id, None)

    def _removed(self, topic: TopicImage) -> None:
        """Stop waiting for replicas of a deleted topic."""
        require(
            topic.name in self.may_vanish, f"F: {topic.name} does not exist, no operator deleted it"
        )
        for index in topic.partitions:
            for _, awaited in self.unclean.values():
                awaited.discard((topic.id, index))
            for broker_id in list(self.lossy):
                self._back((topic.id, index), broker_id)

    def _moved_away(self, key: Key, truth: PartitionTruth, broker_id: int) -> None:
        """Enter that a broker is not a replica any more: it deletes its log, and may come back
        empty."""
        truth.had_before[broker_id] = max(
            truth.had.pop(broker_id, 0), truth.had_before.get(broker_id, 0)
        )
        truth.keys.ends(broker_id, 0)
        if broker_id in self.unclean:
            self.unclean[broker_id][1].discard(key)
        if broker_id in self.lossy:
            self._back(key, broker_id)

    def _replaced(self, key: Key, old: PartitionImage | None, new: PartitionImage) -> None:
        name = f"{self.metadata.image.topics.by_id[key[0]].name}-{key[1]}"
        self._history.append(
            f"{'committed':>12} {name}: leader {new.leader} in {new.leader_epoch}/"
            f"{new.partition_epoch}, ISR {new.isr}"
        )
        truth = self.partitions.setdefault(key, PartitionTruth(name))
        truth.elected[new.leader_epoch] = new.leader
        truth.members[new.partition_epoch] = frozenset(new.isr)
        truth.replicas[new.partition_epoch] = len(new.replicas)
        for broker_id in set(old.replicas if old else ()) - set(new.replicas):
            self._moved_away(key, truth, broker_id)
        self._look_at_members(key, truth)

    # --- the end ------------------------------------------------------------------------------

    def compare_replicas(self) -> None:
        """Check that at the end every replica has the committed records byte by byte (P4).

        A compacted partition must have each key's newest record. A topic in `given_up` must be the
        same everywhere.
        """
        for key, truth in self.partitions.items():
            image = self.metadata.image.topics.partition(*key)
            logs = [] if image is None else [self._open[one][key].log for one in image.replicas]
            where = f"{truth.name} of {image.replicas if image else ()} in the end"
            if truth.name.rpartition("-")[0] in self.given_up:
                self._compare_with_each_other(where, logs, truth)
                continue
            for broker_id, log in zip(image.replicas if image else (), logs, strict=True):
                begin = log.local_log_start_offset
                self._compare(where, "P4", broker_id, log, truth, begin, truth.end)

    def _compare_with_each_other(
        self, where: str, logs: Sequence[Log], truth: PartitionTruth
    ) -> None:
        """Compare replicas with each other (P4) where the committed records are unknown."""
        if any(log.topic in self.compacted for log in logs):
            begin = max(log.local_log_start_offset for log in logs)
            end = max(log.log_end_offset for log in logs)
            found = [_keyed(log, begin) for log in logs]
            problem = problem_between(found, begin, end, truth.keys.undead)
            require(problem is None, f"P4: {where}: {problem}")
            return
        for log in logs[1:]:
            begin = max(log.local_log_start_offset, logs[0].local_log_start_offset)
            mine, first = (
                [b for b, _ in batches_of(o, begin, o.log_end_offset)] for o in (log, logs[0])
            )
            require(mine == first, f"P4: {where}: {mine} and {first}")


def _keyed(log: Log, begin: int) -> dict[int, Keyed]:
    """Return the records of a compacted log from `begin` on."""
    end = log.log_end_offset
    return keyed_records(batches_of(log, begin, end), begin, end)


def _told(at_s: float, life: NodeLife, name: str, leader_id: int, state: State) -> str:
    role, leader_epoch, mark, end, isr, maximal, partition_epoch, _ = state
    return (
        f"{at_s:12.6f} {life} {name}: {role.name} of {leader_id} in "
        f"{leader_epoch}/{partition_epoch}, ISR {sorted(isr)} + {sorted(maximal - isr)}, "
        f"{mark} of {end}"
    )
