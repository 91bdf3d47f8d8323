"""Control batches: markers that brokers and controllers write between the records.

A control batch has the control bit. The key of each of its records contains version and type (two
int16); the type determines the value's schema. End-of-transaction markers (KIP-98) are in data
logs, the other types in the metadata log (KIP-595, KIP-630, KIP-853). The values of the latter are
messages of `protocol.control`; this module handles them as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

from protocol.batch.header import NO_LEADER_EPOCH
from protocol.batch.records import Producer, Record, build_batch
from protocol.errors import ProtocolError

_key = struct.Struct(">hh")
_end_txn_value = struct.Struct(">hi")

CONTROL_KEY_VERSION = 0


class ControlType(IntEnum):
    """The `type` field of a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record of this type."""
    return _key.pack(CONTROL_KEY_VERSION, control_type)


def read_control_type(key: bytes | None) -> int:
    """Return the type number in a control record's key; it may be unknown to `ControlType`.

    Raises ProtocolError for a missing or short key and for a negative version.
    """
    if key is None or len(key) < _key.size:
        raise ProtocolError("control record without a type")
    version, control_type = _key.unpack_from(key)
    if version < 0:
        raise ProtocolError(f"control record key of unknown version {version}")
    return int(control_type)


def build_control_batch(
    entries: Iterable[tuple[ControlType, bytes]],
    base_offset: int,
    *,
    leader_epoch: int,
    timestamp_ms: int,
) -> bytes:
    """Build a control batch of (type, encoded value) pairs, as in the metadata log."""
    return build_batch(
        [
            Record(timestamp=timestamp_ms, key=control_key(control_type), value=value)
            for control_type, value in entries
        ],
        base_offset,
        leader_epoch=leader_epoch,
        control=True,
    )


def build_end_txn_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build the batch that ends a transaction in one partition."""
    record = Record(
        timestamp=timestamp_ms,
        key=control_key(ControlType.COMMIT if commit else ControlType.ABORT),
        value=_end_txn_value.pack(0, coordinator_epoch),
    )
    return build_batch(
        [record],
        leader_epoch=leader_epoch,
        producer=Producer(producer_id, producer_epoch, transactional=True),
        control=True,
    )


def read_end_txn_marker(record: Record) -> tuple[bool, int]:
    """Return (commit, coordinator epoch) of an end-of-transaction marker. Raises ProtocolError."""
    control_type = read_control_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise ProtocolError(
            f"control record of type {control_type} is not an end-of-transaction marker"
        )
    if record.value is None or len(record.value) < _end_txn_value.size:
        raise ProtocolError("end-of-transaction marker without a coordinator epoch")
    version, coordinator_epoch = _end_txn_value.unpack_from(record.value)
    if version < 0:
        raise ProtocolError(f"end-of-transaction marker of unknown version {version}")
    return control_type == ControlType.COMMIT, int(coordinator_epoch)
