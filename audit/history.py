"""Shell: The history of a metadata log as events, for `kraftbox events` and `elect --explain`.

The audit reports its result after the whole log. This reader passes on each event in the order of
the log: elections with kind and cause, changes of ISR and ELR, brokers, the quorum, reassignments
and settings. It can go on when the log grows. It replays the log as the audit does, and leaves out
the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from audit.decoding.batches import Batch, Damage
from audit.findings.finding import Finding
from audit.findings.sink import Elected, Sink
from audit.inputs.metadata_log import MetadataLog, overlapping
from audit.planning.copies import choose_primary
from audit.planning.intervals import plan_intervals
from audit.reading.logs import find_logs
from audit.reading.segments import floor_position, log_end, walk
from audit.state.cluster import PartitionState
from audit.state.elections import Election
from audit.tasks.interval import IntervalAudit


class LogEvent(NamedTuple):
    """An event at an offset of the metadata log.

    `kind` and the `facts` of each:

    - election: kind, cause, from_leader, to_leader, leader_epoch, passed_over
    - leader: before, leader, leader_epoch, why (`created`, `deleted`, `lost`, `replaced`)
    - isr, elr, last-known-elr: before, after (lists of brokers)
    - broker: broker, event, epoch, and more; quorum: leader, epoch; controller: controller
    - reassignment: step, replicas, adding, removing
    - setting: kind, resource, name, before, after
    """

    offset: int
    timestamp_ms: int
    kind: str
    facts: Mapping[str, Any]
    topic: str | None = None
    partition: int | None = None


_PASSED_ON = frozenset({"broker", "quorum", "controller", "reassignment", "setting"})
_SETS = (("isr", "isr"), ("elr", "elr"), ("last-known-elr", "last_known"))


class _Collector(Sink):
    """A sink that passes on events instead of collecting them."""

    def __init__(self, take: Callable[[LogEvent], None]) -> None:
        super().__init__()
        self._take = take
        self._shapes: dict[tuple[bytes, int], Any] = {}

    def finding(self, finding: Finding) -> None:
        """Leave out findings: they belong to the audit."""

    def election(self, election: Election) -> None:
        facts = election._asdict()
        place = {name: facts.pop(name) for name in ("offset", "timestamp_ms")}
        topic, partition = facts.pop("topic"), facts.pop("partition")
        facts["passed_over"] = list(election.passed_over)
        self._take(
            LogEvent(**place, kind="election", facts=facts, topic=topic, partition=partition)
        )

    def leadership(
        self,
        offset: int,
        timestamp_ms: int,
        partition: PartitionState,
        before: int | None,
        why: str,
    ) -> None:
        key = (partition.topic.id, partition.index)
        if why == "known":
            self._shapes[key] = partition.shape.key
            return
        if why == "deleted":
            self._shapes.pop(key, None)
        facts = {
            "before": before,
            "leader": -1 if why == "deleted" else partition.shape.key.leader,
            "leader_epoch": partition.leader_epoch,
            "why": why,
        }
        name, index = partition.topic.name, partition.index
        self._take(LogEvent(offset, timestamp_ms, "leader", facts, name, index))

    def event(self, kind: str, offset: int, timestamp_ms: int, body: Any) -> None:
        if kind not in _PASSED_ON or body.get("event") == "known":
            return
        facts = {key: value for key, value in body.items() if key != "offset"}
        topic, partition = facts.pop("topic", None), facts.pop("partition", None)
        self._take(LogEvent(offset, timestamp_ms, kind, facts, topic, partition))

    def history(
        self,
        offset: int,
        timestamp_ms: int,
        partition: PartitionState,
        record: str,
        elected: Elected | None,
        local_logs: object,
    ) -> None:
        """Pass on the changes of the partition's sets since its last record."""
        key = (partition.topic.id, partition.index)
        before, now = self._shapes.get(key), partition.shape.key
        self._shapes[key] = now
        if before is None or record == "snapshot":
            return
        name, index = partition.topic.name, partition.index
        for kind, field in _SETS:
            old, new = getattr(before, field), getattr(now, field)
            if set(old) != set(new):
                facts = {"before": list(old), "after": list(new)}
                self._take(LogEvent(offset, timestamp_ms, kind, facts, name, index))


class LogHistory:
    """The events of the newest copy of a cluster's metadata log.

    `read` passes on the events of the whole log, `read_new` those of records that were appended
    since.
    """

    def __init__(self, paths: Iterable[Path], take: Callable[[LogEvent], None]) -> None:
        self._paths = list(paths)
        self._sink = _Collector(take)
        self._audit: IntervalAudit | None = None
        self._next_offset = 0

    def read(self) -> None:
        """Pass on all events of the log. Raises UnreadableInput, OSError."""
        log = self._newest()
        for interval in plan_intervals(log):
            self._audit = audit = IntervalAudit(interval, self._sink, history=True)
            audit.begin()
            for path, found in audit.found():
                # The last batch of a running node may be incomplete.
                is_tail = interval.is_last and path == interval.segments[-1].path
                if isinstance(found, Damage) and is_tail and not _follows(path, found):
                    break
                if not audit.take(path, found):
                    break
                if isinstance(found, Batch):
                    self._next_offset = found.header.next_offset

    def read_new(self) -> None:
        """Pass on the events of records since the last call. Raises UnreadableInput, OSError."""
        assert self._audit is not None, "`read` comes first"
        log = self._newest()
        for segment in overlapping(log.segments, self._next_offset, None):
            for found in walk(segment.path, floor_position(segment, self._next_offset)):
                if isinstance(found, Damage) or not found.crc_ok:
                    break
                if found.header.base_offset >= self._next_offset:
                    self._audit.take(segment.path, found)
                    self._next_offset = found.header.next_offset

    def _newest(self) -> MetadataLog:
        logs = find_logs(self._paths)
        return choose_primary(logs, {log.name: log_end(log) for log in logs})


def _follows(path: str, damage: Damage) -> bool:
    """Return whether a whole batch follows the damage in its file."""
    return any(isinstance(one, Batch) for one in walk(path, damage.position + damage.size_bytes))


def events_of(paths: list[Path]) -> list[LogEvent]:
    """Return all events of a cluster's metadata log. Raises UnreadableInput, OSError."""
    found: list[LogEvent] = []
    LogHistory(paths, found.append).read()
    return found
