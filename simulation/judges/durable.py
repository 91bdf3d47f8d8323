"""Durability: the disk is checked at the moment when other code relies on it.

The code relies on a disk long before the power fails. A quorum commits (M8), or a node treats
metadata as committed (M14). A log advances its recovery point (P18), or writes a high watermark to
its checkpoint (P4). The judge checks the disk itself each time, so that a power cut need not come
at the one instant that reveals the bug.

It also checks clean shutdowns (P11). A clean stop leaves a marker on the disk, and the next start
recovers no log. A failed start leaves the marker of the last clean shutdown as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from protocol.batch.header import iter_batches
from simulation.judges.judge import Judge
from simulation.world.cluster import End
from simulation.world.invariants import Violation, require
from storage.log.log import Log

if TYPE_CHECKING:
    from broker.assembly import BrokerServer
    from metalog.quorum.node import QuorumNode
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife
    from storage.files import LossyFiles
    from storage.log.segment import Segment

MARKER = ".kafka_cleanshutdown"
Bounds = tuple[int, int, int, int]


class DurableJudge(Judge):
    """Checks metadata logs, partitions and clean shutdowns against the disks."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._flushed: dict[NodeLife, int] = {}
        self._marks: dict[NodeLife, int] = {}
        self._leads: dict[NodeLife, bool] = {}
        """True for each process that led its quorum at the last check."""
        self._has: dict[tuple[int, bytes | None], int] = {}
        """The flushed end of the metadata log that was seen on each disk of a voter."""
        self._seen: dict[Log, Bounds] = {}
        self._clean: dict[tuple[int, bytes | None], int | None] = {}
        """The broker epoch of the last clean shutdown on each disk, as of the end of a process."""
        self._started: set[NodeLife] = set()
        """Processes whose start was compared with the end of the one before."""
        self._settled: dict[Log, tuple[int, int]] = {}
        """The number of truncations of a log, and the base offset below which its segments are
        settled."""

    def after(self, life: NodeLife) -> None:
        """Check the quorum's log and the changed partitions of a node."""
        node, files = life.node, life.machine.files
        if node is None or files is None:
            return
        quorum = node.quorum
        if quorum is not None and quorum.is_started:
            self._look_at_quorum(life, files, quorum)
        if node.broker is None:
            return
        if life not in self._started and life.ready.done():
            self._started.add(life)
            self._look_at_start(life, node.broker)
        changes = self._world.changes
        for one in changes.among(node.broker.replicas):
            log = one.log
            # Compaction replaces segments in one step, by files that were flushed before.
            if id(log.bounds) in changes.marked and not log.closed and not log.config.compacted:
                self._look_at_log(life, files, log)

    def over(self, life: NodeLife, *, lossy: bool) -> None:
        """Check that a process that never registered and stopped cleanly keeps the last clean
        shutdown on record (P11)."""
        node, place = life.node, (life.machine.node_id, life.machine.directory_id)
        if node is None or node.broker is None:
            return
        before, now = self._clean.get(place), _clean_shutdown(life, node.config.log_dir)
        self._clean[place] = now
        if life.end is End.STOP and life in self._started and not _has_disk_trouble(life):
            require(now is not None, f"P11: {life} stopped cleanly and left no marker on its disk")
        unregistered = node.broker.lifecycle.broker_epoch < 0
        if before is not None and unregistered and life.end is End.STOP:
            lost = node.broker.logs.report.recovered > 0
            require(
                now == before or lost,
                f"P11: {life} never registered; the last clean shutdown was that of broker epoch "
                f"{before}, its disk has {now}",
            )

    def _look_at_start(self, life: NodeLife, broker: BrokerServer) -> None:
        """Check that a process recovers no log after a clean shutdown (P11)."""
        before = self._clean.get((life.machine.node_id, life.machine.directory_id))
        require(
            before is None or broker.logs.report.clean,
            f"P11: {life} starts after the clean shutdown of broker epoch {before}, and recovers "
            "its logs",
        )

    # --- the metadata log -----------------------------------------------------------------------

    def _look_at_quorum(self, life: NodeLife, files: LossyFiles, quorum: QuorumNode) -> None:
        log: Log = quorum.log._log
        flushed, counts = quorum.core._replica.flushed_end, quorum.core.must_flush
        if counts and flushed != self._flushed.get(life):
            self._flushed[life] = flushed
            require(
                self._survives(files, log, flushed),
                f"M14: {life} calls its metadata log durable up to {flushed}, and it is not",
            )
            self._has[life.machine.node_id, life.machine.directory_id] = flushed
        was_leader, self._leads[life] = self._leads.get(life, False), quorum.is_leader
        mark = quorum.high_watermark or 0
        if mark <= self._marks.get(life, 0):
            return
        self._marks[life] = mark
        voters = quorum.voters.ids
        having = [one for one in voters if self._voter_has(one, mark)]
        committed = len(having) > len(voters) // 2
        if quorum.is_leader:  # the leader may be the last of them to have it
            require(
                committed,
                f"M8: {life} commits {mark}, of {sorted(voters)} only {having} have it on disk",
            )
        elif not counts:  # a broker: no promise relies on its own disk
            require(
                committed,
                f"M14: {life} takes {mark} for committed, of {sorted(voters)} only {having} have "
                "it on disk",
            )
        # A leader may commit and become follower in the same callback.
        elif not (was_leader and committed):
            require(
                self._survives(files, log, mark),
                f"M14: {life} takes {mark} for committed, and would not have it after a power cut",
            )

    def _voter_has(self, node_id: int, mark: int) -> bool:
        machine = self._world.cluster.machines[node_id - 1]
        return self._has.get((node_id, machine.directory_id), 0) >= mark

    # --- partitions -----------------------------------------------------------------------------

    def _look_at_log(self, life: NodeLife, files: LossyFiles, log: Log) -> None:
        where = f"{life}, {log.topic}-{log.partition}"
        point, checkpointed = log.recovery_point, log.bounds.checkpointed_recovery_point
        if log.bounds.truncations:
            back = first_coming_back(files, self._unsettled(files, log), log)
            told_mark = log.bounds.durable_high_watermark
            if back is not None and told_mark > back:
                raise Violation(
                    f"P4: {where} writes the high watermark {told_mark} to its "
                    f"checkpoint, a power cut brings back what was cut at {back}"
                )
        bounds = (point, checkpointed, len(log.segments), log.bounds.truncations)
        if bounds == self._seen.get(log):
            return
        self._seen[log] = bounds
        require(
            point <= log.log_end_offset,
            f"P18: {where}: recovery point {point}, the log ends at {log.log_end_offset}",
        )
        require(
            self._survives(files, log, point),
            f"P18: {where}: recovery point {point}, a power cut takes some of it",
        )
        if checkpointed > point:
            # Recovery uses the checkpoint file, and reads no closed segment below its value.
            for segment, following in zip(log.segments, list(log.segments)[1:], strict=False):
                require(
                    following.base_offset > checkpointed or _has_all(files, segment),
                    f"P18: {where}: the checkpoint has {checkpointed}, a power cut takes some of "
                    f"the segment {segment.base_offset}",
                )

    # --- disks ------------------------------------------------------------------------------------

    def _survives(self, files: LossyFiles, log: Log, offset: int) -> bool:
        """Return whether a log is complete below an offset after a power cut."""
        start = log.log_start_offset
        return offset <= start or survives(files, self._unsettled(files, log), offset)

    def _unsettled(self, files: LossyFiles, log: Log) -> list[Segment]:
        """Return the last segments of a log, without closed ones that are completely on disk: only
        a truncation changes those again."""
        truncations, below = self._settled.get(log, (-1, 0))
        if truncations != log.bounds.truncations:
            below = 0
        segments = [one for one in log.segments if one.base_offset >= below]
        while len(segments) > 1:
            kept, on_disk = files.after_power_cut(segments[0].log.path)
            if not kept == on_disk == segments[0].size_bytes:
                break
            below = segments.pop(0).base_offset + 1
        self._settled[log] = (log.bounds.truncations, below)
        return segments


def _has_disk_trouble(life: NodeLife) -> bool:
    """Return whether a fault acts on the disk, or a log has failed: then no stop is clean."""
    node = life.node
    logs = () if node is None or node.broker is None else node.broker.logs.logs.values()
    return bool(life.machine.disk_troubles) or any(log.failure is not None for log in logs)


def _clean_shutdown(life: NodeLife, directory: str) -> int | None:
    """Return the broker epoch of the clean shutdown that the disk has on record, else None."""
    path, disk = f"{directory}/{MARKER}", life.machine.disk
    return int(json.loads(disk.read(path))["brokerEpoch"]) if disk.exists(path) else None


def survives(files: LossyFiles, segments: Iterable[Segment], offset: int) -> bool:
    """Return whether these segments are complete below an offset after a power cut."""
    for segment in segments:
        if segment.base_offset >= offset:
            return True
        if not _has_all(files, segment) and not _has_below(files, segment, offset):
            return False
    return True


def _has_all(files: LossyFiles, segment: Segment) -> bool:
    return files.after_power_cut(segment.log.path)[0] >= segment.size_bytes


def _has_below(files: LossyFiles, segment: Segment, offset: int) -> bool:
    """Return whether the segment keeps every batch below the offset."""
    kept = files.after_power_cut(segment.log.path)[0]
    return all(base >= offset or end <= kept for base, end in _batches(segment))


def _batches(segment: Segment) -> list[tuple[int, int]]:
    """Return (base offset, end position) of each batch."""
    data = segment.log.pread(segment.size_bytes, 0)
    return [(one.base_offset, at + one.size_bytes) for one, at in iter_batches(data)]


def first_coming_back(files: LossyFiles, segments: Iterable[Segment], log: Log) -> int | None:
    """Return the first offset at which a power cut would restore truncated batches, else None."""
    for segment in segments:
        kept, on_disk = files.after_power_cut(segment.log.path)
        if on_disk > kept:
            whole = [base for base, end in _batches(segment) if end > kept]
            return min(whole, default=log.log_end_offset)
    return None
