"""The audit of one interval: reads its batches, replays them, compares with snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from audit.checks import REPLAY_CHECKS
from audit.checks.base import BatchContext, Check, CheckTable, DamageContext, Difference
from audit.decoding.batches import Batch, Damage, DamageKind, split
from audit.findings.finding import Complaint
from audit.findings.sink import Sink
from audit.inputs.metadata_log import Snapshot
from audit.planning.intervals import Interval
from audit.reading.segments import floor_position, walk
from audit.replay.replay import Replay
from audit.replay.scope import Scope
from audit.replay.snapshots import check_first_snapshot, load_snapshot, state_differences
from audit.replay.summary import end_state, partition_rows
from audit.state.elections import LeaderChange
from protocol.batch.control import read_control_type
from protocol.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
    decode_control_value,
)
from protocol.errors import ApiError, ProtocolError
from protocol.json_form import to_json


class IntervalAudit:
    """Audits one interval into a sink."""

    def __init__(
        self,
        interval: Interval,
        sink: Sink,
        *,
        default_min_isr: int = 1,
        history: bool = False,
        partitions: bool = False,
    ) -> None:
        self.interval = interval
        self.sink = sink
        checks = CheckTable([make() for make in REPLAY_CHECKS])
        self.replay = Replay(self._scope(), checks, sink, min_isr=default_min_isr, history=history)
        self._log_checks = checks if self._reports_cluster else CheckTable(())
        """The checks of everything that is not about partitions, in the shard that reports it."""
        self._lists_partitions = partitions
        self._milestones = list(interval.milestones)
        self._expected: int | None = interval.start_offset
        self._epoch: int | None = interval.base.epoch if interval.base else None
        self._first_timestamp_ms: int | None = None
        self._after_damage = False

    def _scope(self) -> Scope:
        return Scope(self.interval.shard, self.interval.shards)

    @property
    def _reports_cluster(self) -> bool:
        """True if this shard reports what is not about partitions; only the first one does."""
        return self.interval.shard == 0

    def run(self) -> None:
        """Audit the whole interval. Raises OSError for a file that cannot be read."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Audit the interval batch by batch, so that the caller can take rows away in between."""
        self.begin()
        for path, found in self.found():
            if not self.take(path, found):
                break
            if isinstance(found, Batch):
                yield
        self._end()
        self.sink.flush()
        self._summarise()

    # --- begin ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Load the snapshot with which the interval begins."""
        interval, replay = self.interval, self.replay
        if interval.base is not None:
            replay.scope.timestamp_ms = -1
            read = load_snapshot if interval.base.end_offset else check_first_snapshot
            problem = read(replay, interval.base, walk(interval.base.path))
            if problem is not None:
                self._report_bad_snapshot(interval.start_offset, problem)
                replay.doubt()
        if not interval.knows_start:
            for check in self._log_checks.starts:
                complaints = check.on_unknown_start(interval.start_offset)
                self._complain_at(interval.start_offset, check, complaints)
            replay.doubt()
        if interval.is_first:
            replay.scope.offset = interval.start_offset - 1
            for partition in self.replay.cluster.each_partition():
                replay.reports.history(partition, "snapshot", replay.scope.offset)
                self.sink.leadership(
                    interval.start_offset, replay.scope.timestamp_ms, partition, None, "known"
                )
            if interval.base is not None and self._reports_cluster:
                for broker in self.replay.cluster.brokers.values():
                    row = {**broker._asdict(), "event": "known", "broker": broker.id}
                    replay.reports.event("broker", row, interval.start_offset)

    # --- batches -------------------------------------------------------------------------------

    def found(self) -> Iterator[tuple[str, Batch | Damage]]:
        """Yield batches and damage of the interval's segments, with the paths of their files."""
        interval = self.interval
        for segment in interval.segments:
            for found in walk(segment.path, floor_position(segment, interval.start_offset)):
                if isinstance(found, Batch) and found.header.base_offset < interval.start_offset:
                    if found.header.next_offset <= interval.start_offset and found.crc_ok:
                        continue
                    if interval.start_offset > segment.base_offset and not found.crc_ok:
                        continue
                yield segment.path, found

    def take(self, path: str, found: Batch | Damage) -> bool:
        """Audit a batch or damage; return False for a batch of the next interval."""
        if isinstance(found, Damage):
            self._damage(path, found)
            return True
        return self._batch(path, found)

    def _batch(self, path: str, batch: Batch) -> bool:
        """Audit a batch; return False if it belongs to the next interval."""
        header = batch.header
        end = self.interval.end_offset
        if end is not None and header.base_offset >= end and batch.crc_ok:
            return False
        self._judge_batch(path, batch)
        if self._trust(batch):
            self._replay(batch)
            if self._milestones:
                self._pass_milestones()
        return True

    def _judge_batch(self, path: str, batch: Batch) -> None:
        checks = self._log_checks.batches
        if checks:
            expected = None if self._after_damage else self._expected
            context = BatchContext(batch, path, expected, self._epoch)
            for check in checks:
                for complaint in check.on_batch(context):
                    self._complain(check, complaint, batch.header.max_timestamp)

    def _trust(self, batch: Batch) -> bool:
        """Return whether to replay the batch; update the reached offset and epoch."""
        header = batch.header
        if not batch.crc_ok:
            self._after_damage = True
            self.replay.doubt()
            return False
        if self._expected is not None and header.base_offset != self._expected:
            if header.base_offset < self._expected and not self._after_damage:
                return False  # repeated offsets are reported, but not replayed twice
            self.replay.doubt()
        self._after_damage = False
        self._expected = header.next_offset
        self._epoch = max(header.leader_epoch, self._epoch or 0)
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = header.max_timestamp
        return True

    def _replay(self, batch: Batch) -> None:
        header = batch.header
        try:
            rows = split(batch)
        except (ProtocolError, ApiError) as error:
            self._report_record_error(header.base_offset, f"batch: {error}")
            self.replay.doubt()
            return
        if header.is_control:
            self._control(batch, rows)
        else:
            self.replay.batch(batch, rows)

    def _control(self, batch: Batch, rows: Sequence[Any]) -> None:
        header = batch.header
        self.replay.scope.timestamp_ms = header.max_timestamp
        self.replay.statistics.records += len(rows)
        self.replay.statistics.batches += 1
        for offset, _, key, value in rows:
            try:
                control = decode_control_value(read_control_type(key), value or b"")
            except ProtocolError as error:
                self._report_record_error(offset, f"control record: {error}")
                continue
            if isinstance(control, LeaderChangeMessage):
                change = LeaderChange(control.leader_id, header.leader_epoch, offset)
                self.replay.leader_change(change, header.max_timestamp)
            elif isinstance(control, VotersRecord | KRaftVersionRecord) and self._reports_cluster:
                self.replay.reports.event("voters", to_json(control, 0), offset)

    def _damage(self, path: str, damage: Damage) -> None:
        self._after_damage = True
        self.replay.doubt()
        last = self.interval.segments[-1].path
        context = DamageContext(
            kind=damage.kind,
            path=path,
            position=damage.position,
            size_bytes=damage.size_bytes,
            at_end=self.interval.is_last and path == last and damage.kind == DamageKind.CUT,
            after_offset=(self._expected or 0) - 1,
        )
        for check in self._log_checks.damage:
            for complaint in check.on_damage(context):
                self._complain(check, complaint, self.replay.scope.timestamp_ms)

    # --- end -----------------------------------------------------------------------------------

    def _pass_milestones(self) -> None:
        """Compare with the snapshots that end at the offset that the replay has reached."""
        while self._milestones and self._milestones[0].end_offset <= (self._expected or 0):
            milestone = self._milestones.pop(0)
            if milestone.end_offset == self._expected and not self.replay.scope.in_doubt:
                self._compare(milestone)

    def _compare(self, snapshot: Snapshot) -> None:
        min_isr = self.replay.cluster.default_min_isr
        other = Replay(self._scope(), CheckTable(()), Sink(), min_isr=min_isr, history=False)
        problem = load_snapshot(other, snapshot, walk(snapshot.path))
        if problem is not None:
            self._report_bad_snapshot(snapshot.end_offset, problem)
            return
        differences: list[Difference] = list(
            state_differences(self.replay.cluster, other.cluster, everything=self._reports_cluster)
        )
        if differences:
            self.replay.scope.offset = snapshot.end_offset
            self.replay.reports.check_snapshot(differences)

    def _end(self) -> None:
        end = self.interval.end_offset
        if end is None or self._expected is None or self._expected >= end or self._after_damage:
            return
        for check in self._log_checks.missing:
            complaints = check.on_missing(self._expected, end - 1)
            self._complain_at(self._expected, check, complaints)

    def _summarise(self) -> None:
        """Write one event with the numbers.

        For the last interval also the state at the log's end.
        """
        interval, replay = self.interval, self.replay
        replay.statistics.close(replay.scope.timestamp_ms)
        numbers = replay.statistics.as_json()
        if not self._reports_cluster:
            numbers["records"] = numbers["batches"] = 0
            numbers["record_types"] = {}
        body = {
            **numbers,
            "interval": interval.number,
            "shard": interval.shard,
            "start_offset": interval.start_offset,
            "end_offset": self._expected,
            "epoch": self._epoch,
            "first_timestamp_ms": self._first_timestamp_ms,
            "last_timestamp_ms": replay.scope.timestamp_ms,
            "leadership_left_out": self.sink.leadership_left_out,
        }
        if self._reports_cluster and replay.cluster.unknown_levels:
            body["unknown_levels"] = replay.cluster.unknown_levels
        if interval.is_last:
            body["end"] = end_state(replay.cluster, whole=self._reports_cluster)
            if self._lists_partitions:
                for row in partition_rows(replay.cluster):
                    replay.reports.event("partition", row)
        self.sink.event("numbers", interval.start_offset, replay.scope.timestamp_ms, body)

    # --- complaints ----------------------------------------------------------------------------

    def _complain(self, check: Check, complaint: Complaint, timestamp_ms: int) -> None:
        self.sink.finding(complaint.finding(check.name, check.severity, -1, timestamp_ms))

    def _complain_at(self, offset: int, check: Check, complaints: Iterable[Complaint]) -> None:
        """Report complaints; those without an offset of their own get this one."""
        for complaint in complaints:
            at = offset if complaint.offset is None else complaint.offset
            placed = complaint._replace(offset=at)
            self._complain(check, placed, self.replay.scope.timestamp_ms)

    def _report_bad_snapshot(self, offset: int, problem: str) -> None:
        for check in self._log_checks.unreadable_snapshots:
            self._complain_at(offset, check, check.on_bad_snapshot(problem))

    def _report_record_error(self, offset: int, reason: str) -> None:
        for check in self._log_checks.record_errors:
            self._complain_at(offset, check, check.on_record_error(reason, orphan=False))
