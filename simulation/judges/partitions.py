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

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from simulation.judges.changes import Changes
from simulation.judges.committed import PartitionTruth, batches_of, keyed_records
from simulation.judges.compacted import Keyed, problem_between
from simulation.judges.convergence import Convergence
from simulation.judges.leader_hints import Views
from simulation.judges.metadata import MetadataTruth
from simulation.judges.producers import LastBatches
from simulation.judges.shown_records import ReplicaState, ShownRecords
from simulation.judges.unclean_ends import UncleanEnds
from simulation.world.invariants import Key, Violation, require
from storage.log.log import Log

if TYPE_CHECKING:
    from simulation.world.cluster import NodeLife

OFFSETS_TOPIC = "__consumer_offsets"
HISTORY = 150
LATELY = 1000
"""Records that may have been committed while a response was on its way."""


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
        self.ends = UncleanEnds(self.metadata, self.given_up)
        self.views = Views()
        self.shown = ShownRecords(self.metadata, self.views, self.compacted)
        self.convergence = Convergence(self.metadata, self.partitions, self.given_up, self.replica)
        self.checks = 0
        self.starts = 0
        """Number of changes of any log's start."""
        self._now_s = 0.0
        self._history: deque[tuple[float, NodeLife, str, int, ReplicaState] | str] = deque(
            maxlen=HISTORY
        )
        self._ended: set[bytes] = set()
        """Incarnation ids of processes that are over."""
        self._marks: dict[NodeLife, int] = {}
        self._seen: dict[Partition, ReplicaState] = {}
        self._open: dict[int, dict[Key, Partition]] = {}

    @property
    def history(self) -> list[str]:
        """Recent changes of replicas as text lines."""
        return [one if isinstance(one, str) else _line(*one) for one in self._history]

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
            state = ReplicaState.of(one)
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
        self.ends.ended(node_id, lossy=lossy)

    def disk_swapped(self, broker_id: int) -> None:
        """Enter another disk of a machine that is off: its replicas are read when it runs."""
        for truth in self.partitions.values():
            had = truth.had.pop(broker_id, 0)
            truth.had_before[broker_id] = max(had, truth.had_before.get(broker_id, 0))
            truth.keys.ends(broker_id, 0)
        self.ends.disk_swapped(broker_id)

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

    def exists(self, topic_id: bytes) -> bool:
        """Return whether the controllers have this topic: else its name may belong to
        another one."""
        return topic_id in self.metadata.image.topics.by_id

    @property
    def with_elr(self) -> bool:
        """True if the cluster has eligible leader replicas enabled."""
        return self.metadata.image.elr_enabled

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

    def _look(
        self, life: NodeLife, one: Partition, old: ReplicaState | None, state: ReplicaState
    ) -> None:
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
                self.ends.failed(node_id, key)
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
        elif end < old.end_offset:
            # The end is compared with the offset seen here before, not with the replica's own
            # state. An empty log has shown nothing: if its leader begins inside a batch, it begins
            # again there (seed 6260).
            is_shown = old.high_watermark > old.start_offset
            require(
                end >= old.high_watermark or not is_shown,
                f"P17: {where} was cut to {end}, it had shown {old.high_watermark}",
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
        shown = self.shown.judge(where, one, truth, old, self._now_s)
        if old is not None:
            self.shown.judge_epochs(where, one, shown)
        self._look_at_members(key, truth)

    def _look_at_last(self, life: NodeLife, one: Partition, old: ReplicaState | None) -> None:
        """Check the records that a leader showed in the callback in which its log or process
        failed."""
        key = (one.topic_id, one.index)
        led = old is not None and old.role is ReplicaRole.LEADER
        if led and self.replica(one.node_id, key) is one and one.topic not in self.given_up:
            truth, end = self.partitions[key], one.log.log_end_offset
            truth.had[one.node_id] = max(truth.had.get(one.node_id, 0), end)
            self.shown.judge(f"{life}, {truth.name}", one, truth, old, self._now_s)

    def _look_at_log(
        self, where: str, one: Partition, truth: PartitionTruth, old: ReplicaState | None
    ) -> None:
        """Check the laws that hold whatever an operator has waived."""
        cut = old is None or one.log.log_end_offset < old.end_offset
        if cut:
            self._scan(where, one.log)
        if one.topic in self.compacted:
            begin = 0 if cut or old is None else old.end_offset
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
        self, where: str, one: Partition, truth: PartitionTruth, old: ReplicaState | None
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
        if old is None or old.role is not ReplicaRole.LEADER or old.leader_epoch != epoch:
            begin = log.local_log_start_offset
            self.shown.compare(where, "P1", one.node_id, log, truth, begin, truth.end)
        else:
            self._look_at_proposed(where, one, truth, one.maximal_isr - one.isr - old.maximal_isr)
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

    def _look_at_members(self, key: Key, truth: PartitionTruth) -> None:
        """Check P2 and P3, by the committed metadata."""
        image = self.metadata.image.topics.partition(*key)
        if image is None or truth.name.rpartition("-")[0] in self.given_up:
            return
        for member in (*image.isr, *image.elr):
            if member in self.ends.lossy:
                if self.with_elr:
                    self.ends.judge_member(truth.name, key, member)
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
        self.ends.joined(key, broker_id)
        if (
            truth is None
            or one is None
            or broker_id in self.ends.lossy
            or one.topic in self.given_up
        ):
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

    def _removed(self, topic: TopicImage) -> None:
        """Stop waiting for replicas of a deleted topic."""
        require(
            topic.name in self.may_vanish, f"F: {topic.name} does not exist, no operator deleted it"
        )
        for index in topic.partitions:
            self.ends.removed((topic.id, index))

    def _moved_away(self, key: Key, truth: PartitionTruth, broker_id: int) -> None:
        """Enter that a broker is not a replica any more: it deletes its log, and may come back
        empty."""
        truth.had_before[broker_id] = max(
            truth.had.pop(broker_id, 0), truth.had_before.get(broker_id, 0)
        )
        truth.keys.ends(broker_id, 0)
        self.ends.moved_away(key, broker_id)

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
                self.shown.compare(where, "P4", broker_id, log, truth, begin, truth.end)

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


def _line(at_s: float, life: NodeLife, name: str, leader_id: int, state: ReplicaState) -> str:
    role, leader_epoch, mark, end, isr, maximal, partition_epoch, _ = state
    return (
        f"{at_s:12.6f} {life} {name}: {role.name} of {leader_id} in "
        f"{leader_epoch}/{partition_epoch}, ISR {sorted(isr)} + {sorted(maximal - isr)}, "
        f"{mark} of {end}"
    )
