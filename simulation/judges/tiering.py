"""Tiered storage (S1-S6, S8-S10), judged from outside: the objects in the store, the committed
records of `__remote_log_metadata`, and the logs and disks of all brokers.

* log start <= local start <= high watermark, and remote end < high watermark (KIP-405, KIP-1023).
* Records that no disk has any more are in finished copies, on the replica's own leader epochs (S1,
  S2).
* A copy has committed batches, byte for byte, and begins only if none was finished (S2, S6).
* An object is deleted only while its copy is not finished, and read only from COPY_FINISHED on
  (S3).
* Before DELETE_STARTED the log start is on the disk of the broker that writes it (S4).
* Retention by size deletes only records above the limit, counting each copy once (S3).
* A replica that begins behind the tier knows the epochs of all its records (S5).
* Offsets reported to clients are correct, in both tiers (S8, `tier_offsets.py`).
* At the end the store has exactly the objects of finished copies (S3, S9, S10), and every broker
  knows the same copies (S6).

Topics in `given_up` are judged only by the laws of each log and of the store: a follower may begin
again below its log start if an unclean leader has less, in Kafka too. A leader that was replaced
during a copy may write objects after its successor has deleted them: they stay, in Kafka too. The
epochs of records in the tier are unknown if their file was older or newer than the log start at a
power cut. During that time a log is not judged, except that this state must end.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from protocol.batch.header import CorruptBatch, iter_batches
from protocol.ids import uuid_from_text
from protocol.topic_name import REMOTE_LOG_METADATA_TOPIC
from simulation.judges.copy_turns import judge_turn, partitions_led
from simulation.judges.judge import Judge
from simulation.judges.tier_end import TierEnd
from simulation.judges.tier_offsets import judge_listed
from simulation.judges.tier_state import TierState, epochs_of, tier_of
from simulation.judges.tier_truth import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    Change,
    Copy,
    Epochs,
    TierTruth,
    epoch_at,
    hole,
)
from simulation.world.invariants import Key, Violation, require
from simulation.world.store import DELETE, PUT, Touch
from storage.log.checkpoints import decode_offsets

if TYPE_CHECKING:
    from broker.replication.partition.partition import Partition
    from simulation.judges.committed import PartitionTruth
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import Machine, NodeLife

LOG_STARTS = "/data/log-start-offset-checkpoint"
AGAIN_S = 3.0
"""Seconds by which a record of an earlier leadership of a broker may be late."""
KNOWN_S = 5.0
"""Seconds after which a leader knows a finished copy, when no fault is active."""
SIZE, TIME = "retention.bytes", "retention.ms"


class Leadership(NamedTuple):
    """A broker's leadership of a partition: since when, and the committed end of the
    metadata then."""

    life: NodeLife
    epoch: int
    since_s: float
    known: int


class TierJudge(Judge):
    """Judges touches of objects, records of copies, replicas, and listed offsets."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._promises = world.promises
        self._on = world.shape.has_tier
        self.state = TierState(world)
        self._end = TierEnd(world, self.state)
        self._read: dict[Key, int] = {}
        """The offset up to which the records of each partition of the metadata topic are known."""
        self._finished: dict[bytes, tuple[Key, int]] = {}
        """The place of each COPY_FINISHED in the metadata topic."""
        self._finished_s: dict[bytes, float] = {}
        """When each was first seen there."""
        self._bounds: dict[Partition, tuple[int, int]] = {}
        """Log start and local start as of the last check."""
        self._begins: dict[tuple[int, Key], list[tuple[float, int, int]]] = {}
        """The history of both for every broker's log, with the time of each."""
        self._leads: dict[tuple[int, Key], Leadership] = {}
        self._touched: list[Touch] = []
        self._limits: dict[str, set[int]] = {}
        """Every `retention.bytes` that a topic ever had."""
        self.counts: dict[str, int] = {
            "copies": 0,
            "copies deleted": 0,
            "objects read": 0,
            "listed": 0,
        }
        if self._on:
            world.store.observer = self._note_touch

    # --- what happens ---------------------------------------------------------------------------

    def _note_touch(self, touch: Touch) -> None:
        # This runs inside a node's own code, where the judge must not raise.
        self._touched.append(touch)

    def after(self, life: NodeLife) -> None:
        """Judge all laws that hold at every moment."""
        if not self._on:
            return
        self._look_at_lost_ends()
        self._look_at_touches()
        self._look_at_records()
        self._look_at_listed()
        node = life.node
        if node is None or node.broker is None:
            return
        for one in self._world.changes.among(node.broker.replicas):
            self._look_at_replica(life, one)

    def _look_at_lost_ends(self) -> None:
        """Enter the copies that the metadata topic has lost with its end."""
        ends = {
            key: truth.end
            for key, truth in self._promises.partitions.items()
            if truth.name.startswith(f"{REMOTE_LOG_METADATA_TOPIC}-")
        }
        if all(at <= ends.get(key, at) for key, at in self._read.items()):
            return
        before, self.state.truth = self.state.truth, TierTruth()
        self._finished = {}
        for key, end in ends.items():
            values = self._promises.partitions[key].values
            for at in range(end):
                change = self.state.truth.replay(at, values[at])
                if change is not None and change.copy.state == COPY_FINISHED:
                    self._finished[change.copy.segment_id] = key, at
                    now_s = self._world.loop.time()
                    self._finished_s.setdefault(change.copy.segment_id, now_s)
            self._read[key] = end
        self.state.losses.note(before, self.state.truth)
        for key in self.state.losses.keys:
            for machine, one in self.state.replicas(key):
                self._look_at_cover(machine.host, one)

    def _look_at_touches(self) -> None:
        """Judge reads and deletions of objects by the state of their copies (S3)."""
        touched, self._touched = self._touched, []
        for touch in touched:
            segment_id = _segment_of(touch.key)
            if segment_id in self.state.losses.copies:
                continue
            copy = self.state.truth.copies.get(segment_id)
            where = f"S3: {touch.life} {touch.what} {touch.key}"
            require(copy is not None, f"{where}: no record names it")
            assert copy is not None
            if touch.what == PUT and copy.state in (DELETE_STARTED, DELETE_FINISHED):
                self.state.late.add(touch.key)
            if touch.what == DELETE:
                require(copy.state != COPY_FINISHED, f"{where}: the {copy} is finished")
            elif touch.what != PUT:
                self.counts["objects read"] += 1
                require(copy.state != COPY_STARTED, f"{where}: the {copy} is not finished")

    def _look_at_records(self) -> None:
        """Replay and judge newly committed records of the metadata topic."""
        for key, truth in self._promises.partitions.items():
            if not truth.name.startswith(f"{REMOTE_LOG_METADATA_TOPIC}-"):
                continue
            for at in range(self._read.get(key, 0), truth.end):
                change = self.state.truth.replay(at, truth.values[at])
                if change is None:
                    continue
                if change.copy.state == COPY_FINISHED:
                    self._finished[change.copy.segment_id] = key, at
                    self._finished_s[change.copy.segment_id] = self._world.loop.time()
                self._judge(change)
            self._read[key] = truth.end

    def _judge(self, change: Change) -> None:
        copy = change.copy
        if copy.state == COPY_STARTED:
            self._look_at_begun(change)
        elif copy.state == COPY_FINISHED:
            self._look_at_finished(copy)
        elif copy.state == DELETE_STARTED and change.before == COPY_FINISHED:
            self._look_at_doomed(change)

    def _look_at_listed(self) -> None:
        """Judge the offsets that leaders reported to clients (S8)."""
        load = self._world.load
        if load is None or not load.listed:
            return
        listed = load.listed[:]
        load.listed.clear()
        for one in listed:
            truth = self.state.kept(one.key)
            if truth is None or one.key in self.state.losses.keys:
                continue
            self.counts["listed"] += 1
            ever = [self.state.truth.copies[each] for each in self._finished]
            ends = {copy.last for copy in ever if copy.key == one.key}
            settled = [
                copy.last
                for copy in self.state.truth.finished(one.key)
                if self._finished_s[copy.segment_id] < one.at_s - KNOWN_S
            ]
            begins = self._begins[one.leader_id, one.key]
            since = max(bisect_right(begins, one.at_s, key=lambda each: each[0]) - 1, 0)
            bounds = [(start, local) for _, start, local in begins[since:]]
            least = max(settled, default=-1) if one.strict else -1
            judge_listed(one, truth, ends, least, bounds)

    # --- copies ---------------------------------------------------------------------------------

    def _look_at_begun(self, change: Change) -> None:
        """Judge a new copy: it is committed, and of the committed lineage (S2); its broker copies
        no segment whose finished copy it must know (S6)."""
        copy = change.copy
        truth = self.state.kept(copy.key)
        if truth is None:
            return
        require(copy.last < truth.end, f"S2: {copy} of {truth.name}, committed is {truth.end}")
        for base, following, epoch, _ in truth.batches.values():
            if copy.begins < following and base <= copy.last:
                require(
                    epoch_at(copy.epochs, max(base, copy.begins)) == epoch,
                    f"S2: {copy} of {truth.name} has {copy.epochs}, {base} is of epoch {epoch}",
                )
        leadership = self._leads.get((change.broker_id, copy.key))
        if copy.key in self.state.losses.keys:
            return
        if leadership is None or leadership.life.machine.life is not leadership.life:
            return
        if not _is_being_copied(leadership.life, copy):
            return
        places = (
            (one, *self._finished[one.segment_id]) for one in self.state.truth.finished(copy.key)
        )
        known = [one for one, topic, at in places if at < leadership.known and topic in self._read]
        twice = known and hole(known, copy.epochs, copy.begins, copy.last + 1) is None
        require(not twice, f"S6: {leadership.life} copies {copy} of {truth.name}: {known} have it")
        for one in partitions_led(leadership.life, copy):
            start = max(one.log.log_start_offset, self.state.floor.get(copy.key, 0))
            missing = self.state.hole(one, start, copy.begins)
            judge_turn(copy, leadership.life, one, missing, self._world.shape)

    def _look_at_finished(self, copy: Copy) -> None:
        """Judge a finished copy: all objects are there, and its log is the committed one
        (S2, S3)."""
        self.counts["copies"] += 1
        bucket = self._world.store.bucket
        gone = copy.names - set(bucket.keys)
        require(not gone, f"S3: {copy} is finished, the store lacks {sorted(gone)}")
        truth = self.state.kept(copy.key)
        if truth is None:
            return
        (name,) = (one for one in copy.names if one.endswith(".log"))
        data = bucket.content(name)
        where = f"S2: {copy} of {truth.name}"
        require(len(data) == copy.size_bytes, f"{where} has {len(data)} of {copy.size_bytes} bytes")
        _judge_content(copy, data, truth, where)

    def _look_at_doomed(self, change: Change) -> None:
        """Judge a deletion: the log start is on the deleting broker's disk (S4), and no replica
        needs the copy (S1)."""
        self.counts["copies deleted"] += 1
        copy = change.copy
        if not self.state.is_tiered(copy.key) or copy.segment_id in self.state.losses.copies:
            return
        for machine, one in self.state.replicas(copy.key):
            if machine.node_id == change.broker_id:
                start = _durable_start(machine, one)
                missing = self.state.hole(one, start, one.log.segments.first_base_offset)
                require(
                    missing is None or self.state.losses.explains(copy.key, missing),
                    f"S4: {machine.host} deletes {copy} of {one.topic}-{one.index}; after a power "
                    f"cut it would begin at {start}, and no log has {missing}",
                )
            if one.topic not in self._promises.given_up:
                self._look_at_cover(machine.host, one)

    # --- replicas -------------------------------------------------------------------------------

    def _look_at_replica(self, life: NodeLife, one: Partition) -> None:
        key, log = (one.topic_id, one.index), one.log
        if one.is_leader:
            self._look_at_leader(life, one)
        if log.bounds.bootstrapping:
            return
        where = f"{life}, {one.topic}-{one.index}"
        start, local = log.log_start_offset, log.local_log_start_offset
        self._note_begin(life.machine.node_id, one)
        floor = self.state.floor.get(key, 0)
        if one.is_leader:
            self.state.floor[key] = max(start, floor)
        if not self.state.is_tiered(key):
            return
        stable, committed = log.last_stable_offset, log.high_watermark
        # A log that begins in the middle of a transaction has its marker later: until that is
        # committed here, the last stable offset is the transaction's begin (seed 90176).
        lowest = local if one.is_leader and committed == log.log_end_offset else 0
        require(
            start <= local <= committed and lowest <= stable <= committed,
            f"S1: {where}: log start {start}, local start {local}, last stable offset {stable}, "
            f"high watermark {committed}",
        )
        before = self._bounds.get(one)
        if before == (start, local):
            return
        self._bounds[one] = start, local
        # A log that begins again behind the tier has its leader's log start. Its own may be later:
        # each replica's was its own local start when the topic left the tier (seed 1338).
        anew = not one.is_leader and local == log.log_end_offset
        if before is not None and not anew and one.topic not in self._promises.given_up:
            require(start >= before[0], f"S4: {where} began at {before[0]}, now at {start}")
        if one.is_leader and before is not None and start > floor:
            self._look_at_size(where, one, start)
        if one.is_leader or one.topic not in self._promises.given_up:
            self._look_at_cover(where, one)
        self._look_at_epochs(where, one)

    def _note_begin(self, node_id: int, one: Partition) -> None:
        begins = self._begins.setdefault((node_id, (one.topic_id, one.index)), [])
        begin = one.log.log_start_offset, one.log.local_log_start_offset
        if not begins or begins[-1][1:] != begin:
            begins.append((self._world.loop.time(), *begin))

    def _look_at_leader(self, life: NodeLife, one: Partition) -> None:
        key, node_id = (one.topic_id, one.index), life.machine.node_id
        leadership = self._leads.get((node_id, key))
        if leadership is None or (leadership.life, leadership.epoch) != (life, one.leader_epoch):
            now_s = self._world.loop.time()
            known = self._known(key)
            if (
                leadership is not None
                and leadership.life is life
                and now_s - leadership.since_s < AGAIN_S
            ):
                known = leadership.known
            self._leads[node_id, key] = Leadership(life, one.leader_epoch, now_s, known)

    def _known(self, key: Key) -> int:
        """Return the committed end of its metadata; 0 while their partition is unknown."""
        seen = [self._finished[c.segment_id][0] for c in self.state.truth.finished(key)]
        return self._read.get(seen[0], 0) if seen else 0

    def _look_at_cover(self, where: str, one: Partition) -> None:
        """Judge that records below the local start are in the tier, on this replica's lineage (S1,
        S2).

        A replica that has not learned of the newest leader may not know either that its topic left
        the tier.
        """
        image = self._promises.metadata.image.topics.partition(one.topic_id, one.index)
        if image is not None and one.leader_epoch < image.leader_epoch:
            return
        start = max(one.log.log_start_offset, self.state.floor.get((one.topic_id, one.index), 0))
        local = one.log.local_log_start_offset
        missing = None if one.log.history.lacks_remote_part else self.state.hole(one, start, local)
        key = (one.topic_id, one.index)
        if missing is not None and self.state.losses.explains(key, missing):
            self.state.losses.gone_to[key] = self.state.losses.start_of(key, local)
            self._promises.given_up.add(one.topic)
            self._promises.unreadable.add(one.topic)
            return
        require(
            missing is None,
            f"S2: {where}: {one.topic}-{one.index} begins at {start} and on the disk at "
            f"{one.log.local_log_start_offset}; no finished copy has {missing}",
        )

    def _look_at_epochs(self, where: str, one: Partition) -> None:
        """Judge that the epochs of records that only the tier has are the committed ones (S5)."""
        log = one.log
        start, local = log.log_start_offset, log.local_log_start_offset
        truth = self.state.kept((one.topic_id, one.index))
        if truth is None or start == local or log.history.lacks_remote_part:
            return
        epochs = epochs_of(log)
        for base, following, epoch, _ in truth.batches.values():
            if start < following and base < local:
                mine = epoch_at(epochs, max(base, start))
                require(mine == epoch, f"S5: {where}: {base} is of epoch {epoch}, not {mine}")

    def _look_at_size(self, where: str, one: Partition, start: int) -> None:
        """Judge a log start that only retention by size moved: the rest is not below the limit
        (S3)."""
        configs = self._promises.configs(one.topic)
        limits = self._limits.setdefault(one.topic, set())
        limits.add(int(configs.get(SIZE, "-1")))
        key = (one.topic_id, one.index)
        if one.topic in self._promises.let_go or TIME in configs or min(limits) < 0:
            return
        if key in self.state.losses.keys:
            return
        epochs, log = epochs_of(one.log), one.log
        copies = [
            copy.size_bytes
            for copy in self.state.truth.finished(key)
            if copy.last >= start and _shares(copy, epochs)
        ]
        ends = [*(segment.base_offset for segment in log.segments)][1:] + [log.log_end_offset]
        local = [
            segment.size_bytes
            for segment, end in zip(log.segments, ends, strict=True)
            if self.state.truth.uncovered(key, epochs, max(segment.base_offset, start), end)
            is not None
        ]
        left = sum(copies) + sum(local)
        require(
            left >= min(limits), f"S3: {where} begins at {start}: {left} bytes stay of {limits}"
        )

    # --- the end --------------------------------------------------------------------------------

    def missing(self) -> str | None:
        """Return a closed segment without copy, a dangling object, or a difference between brokers
        (S9)."""
        if not self._on:
            return None
        self._look_at_touches()
        self._look_at_records()
        return self._end.missing()


def _judge_content(copy: Copy, data: bytes, truth: PartitionTruth, where: str) -> None:
    """Judge that the object of a finished copy has the committed batches, without a hole (S2)."""
    at = copy.first
    try:
        for header, position in iter_batches(data):
            whole = data[position : position + header.size_bytes]
            found = (
                header.base_offset,
                header.next_offset,
                header.leader_epoch,
                zlib.crc32(whole),
            )
            known = truth.batches.get(header.base_offset)
            require(known == found, f"{where} has {found}, committed is {known}")
            require(header.base_offset == at, f"{where}: {header.base_offset} follows {at}")
            at = header.next_offset
    except CorruptBatch as error:
        raise Violation(f"{where}: {error}") from error
    require(at == copy.last + 1, f"{where} ends at {at}")


def _is_being_copied(life: NodeLife, copy: Copy) -> bool:
    """Return whether its broker is copying it. A late record may be of an abandoned copy, over a
    closed connection, too (seed 8948)."""
    tier = tier_of(life)
    leading = () if tier is None else tier.tasks.leading.values()
    return any(copy.segment_id in led.being_copied for led in leading)


def _shares(copy: Copy, epochs: Epochs) -> bool:
    """Return whether some of the copy is of these epochs."""
    starts = [max(copy.begins, start) for _, start in copy.epochs]
    return any(epoch_at(copy.epochs, at) == epoch_at(epochs, at) for at in [*starts, copy.last])


def _segment_of(key: str) -> bytes:
    name = key.rpartition("/")[2].partition(".")[0]
    try:
        return uuid_from_text(name)
    except ValueError as error:
        raise Violation(f"S3: {key} is not an object of a segment") from error


def _durable_start(machine: Machine, one: Partition) -> int:
    """Return where the log would begin after a power cut at this moment."""
    if not machine.disk.exists(LOG_STARTS):
        return 0
    return decode_offsets(machine.disk.read(LOG_STARTS)).get((one.topic, one.index), 0)
