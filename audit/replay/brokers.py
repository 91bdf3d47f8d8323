"""Brokers of a replay: registrations, fencing, and the broker events of one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit.checks.base import BrokerChange
from audit.decoding.batches import Row
from audit.replay.reports import Reports
from audit.replay.scope import Orphan, Scope
from audit.state.cluster import BrokerState, ClusterState
from audit.state.elections import BrokerEvent
from protocol.ids import uuid_to_text
from protocol.json_form import to_json
from protocol.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    decode_record,
)

_RECORD_TYPES = frozenset(
    cls.RECORD_TYPE
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        BrokerRegistrationChangeRecord,
    )
)


class BatchEvents:
    """The broker events of a batch, which explain elections: Kafka writes these before the fencing.

    The batch is searched at the first call of `by_broker`.
    """

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = rows
        self._found: dict[int, BrokerEvent] | None = None

    def by_broker(self) -> Mapping[int, BrokerEvent]:
        if self._found is None:
            self._found = {}
            for row in self._rows:
                value = row[3] or b""
                if len(value) > 2 and value[1] in _RECORD_TYPES:
                    event = _event_of(value)
                    if event is not None:
                        self._found[event[0]] = event[1]
        return self._found


def _event_of(value: bytes) -> tuple[int, BrokerEvent] | None:
    """Return the broker in a framed record and its event."""
    record: Any = decode_record(value)[0]
    if isinstance(record, FenceBrokerRecord | UnfenceBrokerRecord):
        fenced = isinstance(record, FenceBrokerRecord)
        return record.id, BrokerEvent.FENCED if fenced else BrokerEvent.UNFENCED
    if isinstance(record, RegisterBrokerRecord):
        return record.broker_id, BrokerEvent.REGISTERED
    if isinstance(record, UnregisterBrokerRecord):
        return record.broker_id, BrokerEvent.UNREGISTERED
    event = _event_of_change(record)
    return None if event is None else (record.broker_id, event)


def _event_of_change(record: BrokerRegistrationChangeRecord) -> BrokerEvent | None:
    if record.in_controlled_shutdown:
        return BrokerEvent.CONTROLLED_SHUTDOWN
    if record.fenced:
        return BrokerEvent.FENCED if record.fenced > 0 else BrokerEvent.UNFENCED
    return BrokerEvent.DIRECTORY_FAILED if record.log_dirs else None


class Brokers:
    """Applies records about brokers. `fenced` are those fenced since the last batch end."""

    def __init__(self, cluster: ClusterState, scope: Scope, reports: Reports) -> None:
        self.fenced: set[int] = set()
        self._known = cluster.brokers
        self._scope = scope
        self._reports = reports

    def register(self, record: RegisterBrokerRecord) -> None:
        fields = to_json(record, type(record).VERSIONS.last)
        after = BrokerState(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation=uuid_to_text(record.incarnation_id),
            rack=record.rack,
            fenced=record.fenced,
            shutting_down=record.in_controlled_shutdown,
            directories=tuple(map(uuid_to_text, record.log_dirs)),
            cordoned=tuple(map(uuid_to_text, record.cordoned_log_dirs or ())),
            listeners=tuple(f"{e['name']}://{e['host']}:{e['port']}" for e in fields["endPoints"]),
        )
        self._set(record.broker_id, after, BrokerEvent.REGISTERED, record.broker_epoch)

    def unregister(self, record: UnregisterBrokerRecord) -> None:
        self._get(record.broker_id, BrokerEvent.UNREGISTERED)
        self._set(record.broker_id, None, BrokerEvent.UNREGISTERED, record.broker_epoch)

    def fence(self, record: FenceBrokerRecord) -> None:
        before = self._get(record.id, BrokerEvent.FENCED)
        if before is not None:
            after = before._replace(fenced=True)
            self._set(record.id, after, BrokerEvent.FENCED, record.epoch)

    def unfence(self, record: UnfenceBrokerRecord) -> None:
        before = self._get(record.id, BrokerEvent.UNFENCED)
        if before is not None:
            after = before._replace(fenced=False)
            self._set(record.id, after, BrokerEvent.UNFENCED, record.epoch)

    def change(self, record: BrokerRegistrationChangeRecord) -> None:
        event = _event_of_change(record)
        before = self._get(record.broker_id, event or BrokerEvent.REGISTERED)
        if before is None:
            return
        after = before
        if record.fenced:
            after = after._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            after = after._replace(shutting_down=True)
        if record.log_dirs:
            after = after._replace(directories=tuple(map(uuid_to_text, record.log_dirs)))
        if record.cordoned_log_dirs is not None:
            after = after._replace(cordoned=tuple(map(uuid_to_text, record.cordoned_log_dirs)))
        if event is not None:
            self._set(record.broker_id, after, event, record.broker_epoch)
        else:
            self._known[record.broker_id] = after

    def _get(self, broker_id: int, event: BrokerEvent) -> BrokerState | None:
        """Return the broker; None after a gap in the log that may hide it. Raises Orphan."""
        broker = self._known.get(broker_id)
        if broker is None and not self._scope.in_doubt:
            raise Orphan(f"broker {broker_id} is {event}, but it is not registered")
        return broker

    def _set(
        self, broker_id: int, after: BrokerState | None, event: BrokerEvent, epoch: int
    ) -> None:
        before = self._known.get(broker_id)
        if after is None:
            self._known.pop(broker_id, None)
        else:
            self._known[broker_id] = after
        if self._scope.reports_cluster:
            self._reports.event("broker", _broker_row(broker_id, event, before, after, epoch))
        self._judge(BrokerChange(broker_id, event, before, after, epoch))

    def _judge(self, change: BrokerChange) -> None:
        was_fenced = change.before is not None and change.before.fenced
        if change.after is not None and change.after.fenced and not was_fenced:
            self.fenced.add(change.id)
        certain = self._scope.certain_brokers
        if certain is not None:
            doubtful = change.id not in certain
            if change.event is BrokerEvent.REGISTERED:
                certain.add(change.id)
            if doubtful:
                return
        if self._scope.reports_cluster:
            self._reports.check_broker(change)


def _broker_row(
    broker_id: int,
    event: BrokerEvent,
    before: BrokerState | None,
    after: BrokerState | None,
    epoch: int,
) -> dict[str, Any]:
    step: str = event
    if event is BrokerEvent.FENCED and before is not None:
        step = "stopped" if before.shutting_down else "lost"
    row = {"broker": broker_id, "event": step, "epoch": epoch}
    if after is not None:
        row |= {"rack": after.rack, "fenced": after.fenced, "shutting_down": after.shutting_down}
        if event is BrokerEvent.REGISTERED:
            row |= {"incarnation": after.incarnation, "listeners": list(after.listeners)}
    return row
