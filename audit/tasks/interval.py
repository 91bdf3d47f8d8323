"""Intervals: the parts of a log that can be audited apart from each other.

A snapshot is the whole state of the cluster. So the log from one snapshot to the next can be
replayed by itself, in any order and on any machine, and its result judged by the next snapshot. A
log with k snapshots gives k + 1 intervals. Where that is too few for the machines there are, an
interval is read by several shards, each of which replays a share of the partitions; reading is
cheap beside replaying.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from audit.checks import REPLAY_CHECKS
from audit.checks.base import BatchPlace, Check, DamagePlace, Difference
from audit.checks.totals.base import LeaderChange
from audit.decoding.batches import Batch, Damage, DamageKind, split, walk
from audit.findings.finding import Complaint
from audit.findings.sink import Sink
from audit.reading.logs import MetadataLog, Segment, Snapshot, overlapping
from audit.replay.replay import Replay
from audit.replay.snapshots import load_snapshot, world_differences
from audit.state.cluster import NO_LEADER, World
from protocol.batch.control import read_control_type
from protocol.batch.header import HEADER_BYTES, crc_ok, parse_header
from protocol.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
    decode_control_value,
)
from protocol.errors import ApiError, ProtocolError
from protocol.ids import uuid_to_text
from protocol.json_form import to_json

_INDEX_ENTRY_BYTES = 8


class Interval(NamedTuple):
    """Offsets `start_offset` (inclusive) to `end_offset` (exclusive, None: the log's end).

    base: the snapshot it begins with, None for an empty cluster. milestones: snapshots, of any copy
    of the log, that the replay must agree with where it comes by; the last may stand at its end.
    knows_start: whether base (or offset 0) says all that was before.
    """

    number: int
    log: str
    start_offset: int
    end_offset: int | None
    base: Snapshot | None
    milestones: tuple[Snapshot, ...]
    segments: tuple[Segment, ...]
    knows_start: bool
    shard: int = 0
    shards: int = 1

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.end_offset is None


def plan_intervals(log: MetadataLog, others: Sequence[MetadataLog] = ()) -> list[Interval]:
    """The intervals of a log, in order, each with one shard. `others` are copies of it, whose
    snapshots are compared, too."""
    start = log.segments[0].base_offset if log.segments else log.snapshots[-1].end_offset
    older = [s for s in log.snapshots if s.end_offset <= start]
    base = older[-1] if older else None
    cuts: list[Snapshot | None] = [s for s in log.snapshots if s.end_offset > start]
    every = sorted(s for copy in (log, *others) for s in copy.snapshots)
    planned = []
    for number, following in enumerate([*cuts, None]):
        end = None if following is None else following.end_offset
        planned.append(
            Interval(
                number=number,
                log=log.name,
                start_offset=start,
                end_offset=end,
                base=base,
                milestones=tuple(
                    sorted(
                        (s for s in every if start < s.end_offset and not _beyond(s, end)),
                        key=lambda s: s.end_offset,
                    )
                ),
                segments=overlapping(log.segments, start, end),
                knows_start=start == 0 or (base is not None and base.end_offset == start),
            )
        )
        if following is not None:
            start, base = following.end_offset, following
    return planned


def _beyond(snapshot: Snapshot, end: int | None) -> bool:
    return end is not None and snapshot.end_offset > end


def with_shards(intervals: Sequence[Interval], tasks: int) -> list[Interval]:
    """The same intervals in at least `tasks` pieces where they are fewer.

    Long ones are cut first; the longest interval is what a cluster would wait for.
    """
    total = sum(_size_bytes(i) for i in intervals) or 1
    planned = []
    for interval in intervals:
        share = _size_bytes(interval) * tasks / total
        shards = max(1, min(tasks, round(share))) if len(intervals) < tasks else 1
        if shards * SHARD_BYTES_MIN > _size_bytes(interval):
            shards = 1
        planned += [interval._replace(shard=n, shards=shards) for n in range(shards)]
    return planned


SHARD_BYTES_MIN = 4 << 20
"""An interval below this is not worth reading twice."""


def _size_bytes(interval: Interval) -> int:
    return sum(segment.size_bytes for segment in interval.segments)


def floor_position(segment: Segment, offset: int) -> int:
    """A position at or before the batch of `offset`, from the segment's index if it can be
    trusted: the batch there must be whole and not beyond the offset."""
    index = Path(segment.path).with_suffix(".index")
    if offset <= segment.base_offset or not index.is_file():
        return 0
    data = index.read_bytes()
    best = 0
    for at in range(0, len(data) - _INDEX_ENTRY_BYTES + 1, _INDEX_ENTRY_BYTES):
        relative = int.from_bytes(data[at : at + 4], "big")
        if segment.base_offset + relative >= offset or (at and not relative):
            break
        best = int.from_bytes(data[at + 4 : at + 8], "big")
    return best if best and _is_batch(segment.path, best, offset) else 0


def _is_batch(path: str, position: int, below: int) -> bool:
    with open(path, "rb") as file:
        file.seek(position)
        head = file.read(HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return False
        header = parse_header(head)
        if header.base_offset >= below or not HEADER_BYTES <= header.size_bytes < 1 << 30:
            return False
        data = head + file.read(header.size_bytes - HEADER_BYTES)
    return len(data) == header.size_bytes and crc_ok(data, 0, len(data))


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
        self.checks: list[Check] = [make() for make in REPLAY_CHECKS]
        self.world = World(default_min_isr)
        self.replay = Replay(
            self.world,
            self.checks,
            sink,
            shard=interval.shard,
            shards=interval.shards,
            history=history,
        )
        self._default_min_isr = default_min_isr
        self._lists_partitions = partitions
        self._milestones = list(interval.milestones)
        self._expected: int | None = interval.start_offset
        self._epoch: int | None = interval.base.epoch if interval.base else None
        self._first_timestamp_ms: int | None = None
        self._after_damage = False
        self._ended_whole = True

    @property
    def _speaks(self) -> bool:
        """Whether this shard tells what is not about its own partitions."""
        return self.interval.shard == 0

    def run(self) -> None:
        """The whole interval. Raises OSError for a file that cannot be read."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """The whole interval, in steps of a batch, so that who asks can carry rows away."""
        self._begin()
        for path, found in self._walk():
            if isinstance(found, Damage):
                self._damage(path, found)
                continue
            if not self._batch(path, found):
                break
            yield
        self._end()
        self.sink.flush()
        self._summarise()

    # --- begin ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        interval, replay = self.interval, self.replay
        if interval.base is not None:
            replay.timestamp_ms = -1
            problem = load_snapshot(replay, interval.base)
            if problem is not None:
                self._ask("on_bad_snapshot", interval.start_offset, problem)
                replay.doubt()
        if not interval.knows_start:
            self._ask("on_unknown_start", interval.start_offset, interval.start_offset)
            replay.doubt()
        if interval.is_first:
            replay.offset = interval.start_offset - 1
            for partition in self.world.each_partition():
                replay.known(partition, "snapshot")
                self.sink.leadership(
                    interval.start_offset, replay.timestamp_ms, partition, None, "known"
                )
            if interval.base is not None and self._speaks:
                for broker in self.world.brokers.values():
                    row = {**broker._asdict(), "event": "known", "broker": broker.id}
                    replay.tell("broker", row, interval.start_offset)

    # --- batches -------------------------------------------------------------------------------

    def _walk(self) -> Iterator[tuple[str, Batch | Damage]]:
        interval = self.interval
        for segment in interval.segments:
            for found in walk(segment.path, floor_position(segment, interval.start_offset)):
                if isinstance(found, Batch) and found.header.base_offset < interval.start_offset:
                    if found.header.next_offset <= interval.start_offset and found.crc_ok:
                        continue
                    if interval.start_offset > segment.base_offset and not found.crc_ok:
                        continue
                yield segment.path, found

    def _batch(self, path: str, batch: Batch) -> bool:
        """False when the batch belongs to the next interval."""
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
        if self._speaks:
            expected = None if self._after_damage else self._expected
            place = BatchPlace(batch, path, expected, self._epoch, self._after_damage)
            for check in self.checks:
                for complaint in check.on_batch(place):
                    self._complain(check, complaint, batch.header.max_timestamp)

    def _trust(self, batch: Batch) -> bool:
        """Whether the batch is to be replayed; what it says about the log's place is noted."""
        header = batch.header
        if not batch.crc_ok:
            self._after_damage = True
            self.replay.doubt()
            return False
        if self._expected is not None and header.base_offset != self._expected:
            if header.base_offset < self._expected and not self._after_damage:
                return False  # the same offsets again: complained about, and not replayed twice
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
            self._ask("on_record_error", header.base_offset, f"batch: {error}", False)
            self.replay.doubt()
            return
        if header.is_control:
            self._control(batch, rows)
        else:
            self.replay.batch(batch, rows)

    def _control(self, batch: Batch, rows: Sequence[Any]) -> None:
        header = batch.header
        self.replay.timestamp_ms = header.max_timestamp
        self.replay.statistics.records += len(rows)
        self.replay.statistics.batches += 1
        for offset, _, key, value in rows:
            try:
                control = decode_control_value(read_control_type(key), value or b"")
            except ProtocolError as error:
                self._ask("on_record_error", offset, f"control record: {error}", False)
                continue
            if isinstance(control, LeaderChangeMessage):
                change = LeaderChange(control.leader_id, header.leader_epoch, offset)
                self.replay.leader_change(change, header.max_timestamp)
            elif isinstance(control, VotersRecord | KRaftVersionRecord) and self._speaks:
                self.replay.tell("voters", to_json(control, 0), offset)

    def _damage(self, path: str, damage: Damage) -> None:
        self._after_damage = True
        self._ended_whole = False
        self.replay.doubt()
        if not self._speaks:
            return
        last = self.interval.segments[-1].path
        place = DamagePlace(
            kind=damage.kind,
            path=path,
            position=damage.position,
            size_bytes=damage.size_bytes,
            at_end=self.interval.is_last and path == last and damage.kind == DamageKind.CUT,
            after_offset=(self._expected or 0) - 1,
        )
        for check in self.checks:
            for complaint in check.on_damage(place):
                self._complain(check, complaint, self.replay.timestamp_ms)

    # --- end -----------------------------------------------------------------------------------

    def _pass_milestones(self) -> None:
        """Compare with every snapshot that ends where the replay is."""
        while self._milestones and self._milestones[0].end_offset <= (self._expected or 0):
            milestone = self._milestones.pop(0)
            if milestone.end_offset == self._expected and not self.replay.in_doubt:
                self._compare(milestone)

    def _compare(self, snapshot: Snapshot) -> None:
        interval = self.interval
        other = Replay(
            World(self._default_min_isr), (), Sink(), shard=interval.shard, shards=interval.shards
        )
        problem = load_snapshot(other, snapshot)
        if problem is not None:
            self._ask("on_bad_snapshot", snapshot.end_offset, problem)
            return
        differences: list[Difference] = list(
            world_differences(self.world, other.world, everything=self._speaks)
        )
        if differences:
            self.replay.offset = snapshot.end_offset
            self.replay.snapshot_differs(differences)

    def _end(self) -> None:
        end = self.interval.end_offset
        if end is None or self._expected is None or self._expected >= end or self._after_damage:
            return
        self._ask("on_missing", self._expected, self._expected, end - 1)

    def _summarise(self) -> None:
        """One event with the numbers, and what the last interval knows of the end."""
        interval, replay = self.interval, self.replay
        replay.statistics.close(replay.timestamp_ms)
        numbers = replay.statistics.as_json()
        if not self._speaks:
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
            "last_timestamp_ms": replay.timestamp_ms,
            "moves_dropped": self.sink.moves_dropped,
        }
        if interval.is_last:
            body["end"] = self._end_state()
            if self._lists_partitions:
                self._list_partitions()
        self.sink.event("numbers", interval.start_offset, replay.timestamp_ms, body)

    def _list_partitions(self) -> None:
        for partition in self.world.each_partition():
            shape, topic = partition.shape.key, partition.topic
            policy = self.world.setting(topic.name, "cleanup.policy") or ""
            row = {
                "topic": topic.name,
                "topic_id": uuid_to_text(topic.id),
                "partition": partition.index,
                "leader": shape.leader,
                "leader_epoch": partition.leader_epoch if partition.certain else None,
                "replicas": list(shape.replicas),
                "isr": list(shape.isr),
                "compacted": "compact" in policy or topic.name.startswith("__"),
            }
            self.replay.tell("partition", row)

    def _end_state(self) -> dict[str, Any]:
        leaders: dict[str, int] = {}
        preferred: dict[str, int] = {}
        replicas: dict[str, int] = {}
        under = stopped = 0
        for partition in self.world.each_partition():
            shape = partition.shape.key
            stopped += partition.shape.leaderless and self.world.went_in_order(shape)
            leaders[str(shape.leader)] = leaders.get(str(shape.leader), 0) + 1
            if shape.replicas:
                first = str(shape.replicas[0])
                preferred[first] = preferred.get(first, 0) + 1
            for replica in shape.replicas:
                replicas[str(replica)] = replicas.get(str(replica), 0) + 1
            under += partition.shape.under
        return {
            "partitions": len(self.world.partitions),
            "topics": len(self.world.topics) if self._speaks else 0,
            "leaderless": leaders.get(str(NO_LEADER), 0),
            "leaderless_stopped": stopped,
            "under_min_isr": under,
            "leaders": leaders,
            "preferred": preferred,
            "replicas": replicas,
            "brokers": [b._asdict() for b in self.world.brokers.values()] if self._speaks else [],
            "features": self.world.features if self._speaks else {},
        }

    # --- complaints ----------------------------------------------------------------------------

    def _complain(self, check: Check, complaint: Complaint, timestamp_ms: int) -> None:
        self.sink.finding(complaint.finding(check.name, check.severity, -1, timestamp_ms))

    def _ask(self, hook: str, offset: int, *arguments: Any) -> None:
        """Ask every check that has the hook; shard 0 asks for all."""
        if self._speaks:
            for check in self.checks:
                for complaint in getattr(check, hook)(*arguments):
                    at = offset if complaint.offset is None else complaint.offset
                    told = complaint._replace(offset=at)
                    self._complain(check, told, self.replay.timestamp_ms)
