"""Replicas that begin behind the tier (KIP-405, KIP-1023), judged from outside.

* A follower requests from the tier the epoch that wrote the offset before its begin, and that
  offset is committed (S5).
* A log that is about to begin is in no ISR, and no leader proposes it for one (P13).
* A process that ends before the log has begun leaves its marker, or a whole log (S5).
* Once a log has begun its epochs are its leader's, from its log start on, also in topics in
  `given_up` (S5, P17).
* At the end of the run all replicas have the same epochs, and the same producer state (S5, T2).

`judges.partitions` and `judges.tiering` check the rest: replicas have the same bytes, the tier has
the other records, and all are in sync in the end.
"""

from __future__ import annotations

import contextlib
import math
import posixpath
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

from broker.replication.partition.role import ReplicaRole
from broker.tiering.following import TierBeginnings
from simulation.judges.judge import Judge
from simulation.world.invariants import Key, Violation, require
from storage.log.bootstrap import MARKER
from storage.log.checkpoints import LEADER_EPOCH_CHECKPOINT, decode_epochs

if TYPE_CHECKING:
    from broker.replication.fetching.fetcher import Reset
    from broker.replication.fetching.offset_resets import LeaderLog
    from broker.replication.partition.partition import Partition
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import Machine, NodeLife
    from storage.log.log import Log

SEGMENT = ".log"
Lineage = list[tuple[int, int]]
"""Epochs, each with its first offset."""


class Beginning(NamedTuple):
    """The life in which a log is about to begin, and its former begin if it was empty and had no
    epochs, 0 otherwise.

    Such a log was cut to its leader's log start. If a crash loses the marker, the log is found as
    it was before.
    """

    life: NodeLife
    was_at: int


class NewReplicaJudge(Judge):
    """Judges beginnings behind the tier, and the replicas of tiered partitions at the end."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._promises = world.promises
        self._on = world.shape.has_tier
        self._broken: list[str] = []
        self._asked: dict[Partition, int] = {}
        """The leader epoch of the last beginning of each replica."""
        self._beginning: dict[Partition, Beginning] = {}
        self.counts: dict[str, int] = {"logs begun behind the tier": 0}

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hook into the place that every log passes which is to begin behind the tier."""
        begin = TierBeginnings.begin

        def heard(beginnings: TierBeginnings, wanted: Reset, leader: LeaderLog) -> Awaitable[None]:
            self._hear(wanted, leader)
            return begin(beginnings, wanted, leader)

        with mock.patch.object(TierBeginnings, "begin", heard):
            yield

    def _hear(self, wanted: Reset, leader: LeaderLog) -> None:
        # This runs inside a node's own code, where the judge must not raise.
        one = wanted.partition
        self._asked[one] = wanted.leader_epoch
        truth = self._promises.partitions.get((one.topic_id, one.index))
        if truth is None or one.topic in self._promises.given_up:
            return
        where = f"S5: {one.topic}-{one.index} on {one.node_id} is to begin at {leader.copy_from}"
        if leader.copy_from > truth.end:
            self._broken.append(f"{where}, committed is {truth.end}")
        asked = self._leader_of(one)
        if asked is not None and asked.log.log_start_offset >= leader.copy_from:
            # The leader has deleted the records before in the meantime, and the epochs with them.
            # No copy of another epoch exists (S3), so the follower repeats its request.
            return
        if asked is not None and asked.log.history.lacks_remote_part:
            return  # likewise: after a crash the leader has yet to read its epochs from the tier
        for base, following, epoch, _ in truth.batches.values():
            if base < leader.copy_from <= following and epoch != leader.epoch_before:
                said = leader.epoch_before
                self._broken.append(f"{where} behind epoch {epoch}, and asks for epoch {said}")

    def after(self, life: NodeLife) -> None:
        """Judge all laws that hold at every moment."""
        if not self._on:
            return
        require(not self._broken, self._broken[0] if self._broken else "")
        node = life.node
        if node is None or node.broker is None:
            return
        changes = self._world.changes
        for one in changes.among(node.broker.replicas):
            if id(one.log.bounds) not in changes.marked:
                continue
            if one.log.bounds.bootstrapping:
                if one not in self._beginning:
                    was_at = 0 if len(one.log.epochs) else one.log.log_end_offset
                    self._beginning[one] = Beginning(life, was_at)
            elif self._beginning.pop(one, None) is not None:
                self._look_at_begun(life, one)
        if self._beginning:
            self._look_at_members(life)

    def over(self, life: NodeLife, *, lossy: bool) -> None:
        """Judge the logs that were about to begin: each begins again, since its marker is there, or
        is whole."""
        for one, its in [*self._beginning.items()]:
            if its.life is life:
                del self._beginning[one]
                where = f"S5: {life}, {one.topic}-{one.index}"
                _look_at_folder(where, one.log.directory, life.machine, its.was_at)

    def _look_at_members(self, life: NodeLife) -> None:
        """Judge P13, by the committed metadata, and by the leader that has just run."""
        assert life.node is not None and life.node.broker is not None
        image = self._promises.metadata.image
        gone = [one for one in self._beginning if one.role is ReplicaRole.DELETED]
        # its replica was removed before the log began; there may be another replica now
        for one in gone:
            del self._beginning[one]
        for one, (its, _) in self._beginning.items():
            topic = image.topics.by_id.get(one.topic_id)
            committed = None if topic is None else topic.partitions.get(one.index)
            members: set[int] = set()
            if committed is not None and committed.directory_of(one.node_id) == _directory(its):
                members = {*committed.isr}
            leader = _find(life, (one.topic_id, one.index))
            if leader is not None and leader.is_leader and leader.leader_epoch == one.leader_epoch:
                members |= leader.maximal_isr
            where = f"P13: {its}, {one.topic}-{one.index}"
            require(one.node_id not in members, f"{where} is in an ISR, and about to begin")

    def _look_at_begun(self, life: NodeLife, one: Partition) -> None:
        log = one.log
        if log.failure is not None or log.log_start_offset == log.local_log_start_offset:
            return
        self.counts["logs begun behind the tier"] += 1
        if one.topic in self._promises.given_up and self._asked.get(one) != one.leader_epoch:
            return  # another unclean leader may have another log
        leader = self._leader_of(one)
        if leader is not None:
            _same_lineage(f"{life}, {one.topic}-{one.index} begins", log, leader.log, begun=True)

    def _leader_of(self, one: Partition) -> Partition | None:
        for machine in self._world.cluster.machines:
            if machine.life is not None and machine.life.alive:
                found = _find(machine.life, (one.topic_id, one.index))
                if found and found.is_leader and found.leader_epoch == one.leader_epoch:
                    return found
        return None

    def at_end(self) -> None:
        """Compare followers of tiered partitions with their leaders (S5, T2)."""
        for machine in self._world.cluster.machines:
            life = machine.life
            if not self._on or life is None or life.node is None or life.node.broker is None:
                continue
            for one in life.node.broker.replicas:
                leader = self._leader_of(one)
                if leader is None or leader is one or not one.log.config.remote_storage_enable:
                    continue
                where = f"{life}, {one.topic}-{one.index} ends"
                _same_lineage(where, one.log, leader.log, begun=False)
                _same_producers(where, one.log, leader.log)


def _directory(life: NodeLife) -> bytes | None:
    return life.machine.directory_id


def _look_at_folder(where: str, folder: str, machine: Machine, was_at: int) -> None:
    """Judge a log that begins in the middle without a marker: its epochs must be there, or it must
    be as before, at `was_at`."""
    disk = machine.disk
    names = disk.listdir(folder) if disk.isdir(folder) else []
    bases = [int(name.removesuffix(SEGMENT)) for name in names if name.endswith(SEGMENT)]
    if MARKER in names or min(bases, default=0) in (0, was_at):
        return
    path = posixpath.join(folder, LEADER_EPOCH_CHECKPOINT)
    saved = decode_epochs(disk.read(path)) if LEADER_EPOCH_CHECKPOINT in names else []
    known = any(one.start_offset < min(bases) for one in saved)
    require(known, f"{where} ended about to begin at {min(bases)}, no marker, epochs {saved}")


def _find(life: NodeLife, key: Key) -> Partition | None:
    node = life.node
    if node is None or node.broker is None:
        return None
    return next((one for one in node.broker.replicas if (one.topic_id, one.index) == key), None)


def _same_lineage(where: str, log: Log, leader: Log, *, begun: bool) -> None:
    """Compare epochs from the later log start to the local log start, or to the log end."""
    if log.history.lacks_remote_part or leader.history.lacks_remote_part:
        return
    start = max(log.log_start_offset, leader.log_start_offset)
    end = log.local_log_start_offset if begun else min(log.log_end_offset, leader.log_end_offset)
    mine, its = lineage_between(log, start, end), lineage_between(leader, start, end)
    require(
        mine == its, f"S5: {where} with epochs {mine} in [{start}, {end}), its leader has {its}"
    )


def lineage_between(log: Log, start: int, end: int) -> Lineage:
    """Return the leader epochs of the offsets from `start` to below `end`, each with its first."""
    entries = log.epochs.entries
    # An empty log has no epochs.
    behind = [*(one.start_offset for one in entries[1:]), end] if entries else []
    return [
        (one.epoch, max(one.start_offset, start))
        for one, following in zip(entries, behind, strict=True)
        if one.start_offset < end and following > start
    ]


def _same_producers(where: str, log: Log, leader: Log) -> None:
    """Compare producer states. Those of producers whose last batch is deleted may differ."""
    start = max(log.log_start_offset, leader.log_start_offset)
    mine, its = (
        {s.producer_id: (s.epoch, s.last_offset) for s in one.producers if s.last_offset >= start}
        for one in (log, leader)
    )
    if mine != its:
        raise Violation(f"T2: {where} with producers {mine}, its leader has {its}")
