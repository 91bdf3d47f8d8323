"""Metadata records from their bytes, in bulk.

Nearly every record of a long log is a PartitionChangeRecord, and its bytes after the partition (an
ISR of three, a leader) are often the same. So the codec of `protocol` decodes each distinct rest of
a record once, and later records look the result up by those bytes. Other records are decoded one by
one.

Reports of local logs (KIP-1303) are never the same twice, and no check depends on them. So they are
removed from the bytes of the lookup.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from metalog.image.local_log import LocalLogTable, table_of
from protocol.ids import uuid_to_text
from protocol.json_form import to_json
from protocol.metadata import PartitionChangeRecord, decode_record
from protocol.varint import decode_uvarint, encode_uvarint

CHANGE_TYPE = PartitionChangeRecord.RECORD_TYPE
KEY_AT, KEY_END = 3, 23
"""The position of the partition in a framed partition change: an int32 index and a topic ID."""
CACHE_ENTRIES_MAX = 200_000
LOCAL_LOGS_TAG: Final = 10002
_LOCAL_LOGS: Final = encode_uvarint(LOCAL_LOGS_TAG)
LEADER_STAYS = -2
RECOVERY_STAYS = -1


@dataclass(slots=True, eq=False)
class PartitionChange:
    """The content of a partition change; None (LEADER_STAYS, RECOVERY_STAYS) means unchanged.

    Changes are compared by identity: `PartitionChangeCache` creates each only once. `kind` and
    `cause` are a Kraftbox controller's notes about an election, 0 and "" without notes.
    """

    isr: tuple[int, ...] | None
    leader: int
    replicas: tuple[int, ...] | None
    removing: tuple[int, ...] | None
    adding: tuple[int, ...] | None
    recovery: int
    elr: tuple[int, ...] | None
    last_known: tuple[int, ...] | None
    directories: tuple[bytes, ...] | None
    kind: int
    cause: str


def partition_change(record: PartitionChangeRecord) -> PartitionChange:
    return PartitionChange(
        isr=_tuple(record.isr),
        leader=record.leader,
        replicas=_tuple(record.replicas),
        removing=_tuple(record.removing_replicas),
        adding=_tuple(record.adding_replicas),
        recovery=record.leader_recovery_state,
        elr=_tuple(record.eligible_leader_replicas),
        last_known=_tuple(record.last_known_elr),
        directories=None if record.directories is None else tuple(record.directories),
        kind=getattr(record, "election_kind", 0),
        cause=getattr(record, "election_cause", ""),
    )


def _tuple(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


class PartitionChangeCache:
    """Changes by the bytes that follow the partition in a framed change.

    `on_clear` is called when the cache is cleared: data stored by change is useless afterwards.
    """

    def __init__(self, on_clear: Callable[[], None] = lambda: None) -> None:
        self._known: dict[bytes, PartitionChange] = {}
        self._on_clear = on_clear

    def get(self, value: bytes) -> PartitionChange:
        """Return the change of a framed PartitionChangeRecord. Raises ProtocolError."""
        value = without_local_logs(value)
        rest = value[2:3] + value[KEY_END:]
        change = self._known.get(rest)
        if change is None:
            record, _ = decode_record(value)
            assert isinstance(record, PartitionChangeRecord)
            change = partition_change(record)
            if len(self._known) >= CACHE_ENTRIES_MAX:
                self._known.clear()
                self._on_clear()
            self._known[rest] = change
        return change


def without_local_logs(value: bytes) -> bytes:
    """Return a framed PartitionChangeRecord without local logs.

    Returns `value` itself if it has no such field, or is malformed.
    """
    if _LOCAL_LOGS not in value[KEY_END:]:
        return value
    count, pos = decode_uvarint(value, KEY_END, "tag count")
    kept = []
    for _ in range(count):
        at = pos
        tag, pos = decode_uvarint(value, pos, "tag")
        size, pos = decode_uvarint(value, pos, "size of a tag")
        pos += size
        if tag != LOCAL_LOGS_TAG:
            kept.append(value[at:pos])
    if len(kept) == count or pos > len(value):
        return value
    return b"".join((value[:KEY_END], encode_uvarint(len(kept)), *kept, value[pos:]))


def local_logs(value: bytes) -> LocalLogTable | None:
    """Return the local logs in a framed PartitionChangeRecord; None if it does not change them."""
    if _LOCAL_LOGS not in value or without_local_logs(value) is value:
        return None
    record, _ = decode_record(value)
    assert isinstance(record, PartitionChangeRecord)
    return None if record.local_logs is None else table_of(record.local_logs)


def is_change(value: bytes) -> bool:
    """Return whether these are the bytes of a framed PartitionChangeRecord, version below 128."""
    return len(value) > KEY_END and value[0] == 1 and value[1] == CHANGE_TYPE and value[2] < 128


class Decoded(NamedTuple):
    """A record as a row of a table. `fields` is JSON in the format of Kafka's tools."""

    name: str
    version: int
    fields: str


class JsonCache:
    """Formatter of records as JSON.

    Of a change only the partition is formatted; the rest is cached.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, str]] = {}
        self._topics: dict[bytes, str] = {}

    def decode(self, value: bytes) -> Decoded:
        """Return a record with its fields as JSON. Raises ProtocolError."""
        if not is_change(value):
            record, version = decode_record(value)
            return Decoded(type(record).__name__, version, dumps(to_json(record, version)))
        rest = value[2:3] + value[KEY_END:]
        known = self._known.get(rest)
        if known is None:
            known = self._tail(value)
            if without_local_logs(value) is value:  # records with local logs rarely repeat
                self._known[rest] = known
            if len(self._known) > CACHE_ENTRIES_MAX:
                self._known.clear()
        topic_id = value[7:KEY_END]
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = uuid_to_text(topic_id)
        index = int.from_bytes(value[KEY_AT:7], "big", signed=True)
        return Decoded(
            PartitionChangeRecord.__name__,
            known[0],
            f'{{"partitionId":{index},"topicId":"{topic}"{known[1]}',
        )

    @staticmethod
    def _tail(value: bytes) -> tuple[int, str]:
        record, version = decode_record(value)
        fields = to_json(record, version)
        for name in ("partitionId", "topicId"):
            del fields[name]
        text = dumps(fields)
        return version, ("," if fields else "") + text[1:]


def dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
