"""Keys and values of internal topics, and other messages that begin with an int16.

In `__consumer_offsets` and `__transaction_state`, a key begins with its record type and a value
with its version, both int16. The embedded consumer protocol (subscription, assignment) begins with
its version, too. Classes are in one module per key/value pair, imported on demand.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib import import_module
from typing import TypeVar, cast

from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.record_frame import decode_framed
from protocol.schema import Buffer, CoordinatorRecord, Message, MetadataRecord

M = TypeVar("M", bound=Message)

_INT16 = struct.Struct(">h")

KEY_VERSION = 0

# Record type -> module, for __consumer_offsets.
GROUP_RECORDS = {
    0: "legacy_offset_commit",
    1: "offset_commit",
    2: "group_metadata",
    3: "consumer_group_metadata",
    4: "consumer_group_partition_metadata",
    5: "consumer_group_member_metadata",
    6: "consumer_group_target_assignment_metadata",
    7: "consumer_group_target_assignment_member",
    8: "consumer_group_current_member_assignment",
    10: "share_group_member_metadata",
    11: "share_group_metadata",
    12: "share_group_target_assignment_metadata",
    13: "share_group_target_assignment_member",
    14: "share_group_current_member_assignment",
    15: "share_group_state_partition_metadata",
    16: "consumer_group_regular_expression",
    17: "streams_group_metadata",
    19: "streams_group_member_metadata",
    20: "streams_group_target_assignment_metadata",
    21: "streams_group_target_assignment_member",
    22: "streams_group_current_member_assignment",
    23: "streams_group_topology",
}

# Record type -> module, for __transaction_state.
TRANSACTION_RECORDS = {0: "transaction_log"}

# Record type -> module, for the metadata topic of tiered storage (framed as metadata records).
REMOTE_LOG_RECORDS = {
    0: "remote_log_segment_metadata_record",
    1: "remote_log_segment_metadata_update_record",
    2: "remote_partition_delete_metadata_record",
    3: "remote_log_segment_metadata_snapshot_record",
}


def encode_versioned(msg: Message, version: int) -> bytes:
    """Encode an int16 version, then the message. For values and the consumer protocol."""
    return _INT16.pack(version) + encode(msg, version)


def decode_versioned(cls: type[M], buf: Buffer, *, newer_as_latest: bool = False) -> tuple[M, int]:
    """Decode an int16 version and the message. Returns both.

    `newer_as_latest` reads a version above the latest known one as the latest, which the consumer
    protocol guarantees to work. Raises ProtocolError for another unknown version or broken bytes.
    """
    version = _read_int16(buf, f"version of {cls.__name__}")
    known = min(version, cls.VERSIONS.last) if newer_as_latest else version
    msg, _ = decode(cls, buf, known, _INT16.size)
    return msg, version


def encode_key(key: CoordinatorRecord) -> bytes:
    """Encode an int16 record type, then the key."""
    return _INT16.pack(key.RECORD_TYPE) + encode(key, KEY_VERSION)


def decode_group_key(buf: Buffer) -> CoordinatorRecord:
    """Decode a key of __consumer_offsets. Raises ProtocolError for an unknown type or broken
    bytes."""
    return _decode_key(buf, GROUP_RECORDS)


def decode_transaction_key(buf: Buffer) -> CoordinatorRecord:
    """Decode a key of __transaction_state. Raises ProtocolError for an unknown type or broken
    bytes."""
    return _decode_key(buf, TRANSACTION_RECORDS)


@cache
def value_class(key_class: type[CoordinatorRecord]) -> type[CoordinatorRecord]:
    """Return the class of the values that belong to a key class."""
    module = import_module(key_class.__module__)
    name = key_class.__name__.removesuffix("Key") + "Value"
    return cast("type[CoordinatorRecord]", getattr(module, name))


def decode_remote_log_record(value: Buffer) -> tuple[MetadataRecord, int]:
    """Decode a framed record of tiered storage's metadata topic. Returns it and its version.

    Raises ProtocolError as for records of the metadata log.
    """
    return decode_framed(value, _remote_log_class)


def _decode_key(buf: Buffer, modules: dict[int, str]) -> CoordinatorRecord:
    record_type = _read_int16(buf, "record type of a key")
    key, _ = decode(_key_class(record_type, modules), buf, KEY_VERSION, _INT16.size)
    return key


def _key_class(record_type: int, modules: dict[int, str]) -> type[CoordinatorRecord]:
    name = modules.get(record_type)
    if name is None:
        raise ProtocolError("record type of a key", record_type, str(sorted(modules)))
    return cast("type[CoordinatorRecord]", _class_in(name, "Key"))


def _remote_log_class(record_type: int) -> type[MetadataRecord]:
    name = REMOTE_LOG_RECORDS.get(record_type)
    if name is None:
        raise ProtocolError("remote log record type", record_type, str(sorted(REMOTE_LOG_RECORDS)))
    return cast("type[MetadataRecord]", _class_in(name, ""))


@cache
def _class_in(module_name: str, suffix: str) -> object:
    module = import_module(f"{__name__}.{module_name}")
    return getattr(module, "".join(word.capitalize() for word in module_name.split("_")) + suffix)


def _read_int16(buf: Buffer, what: str) -> int:
    if len(buf) < _INT16.size:
        raise ProtocolError(f"bytes for {what}", len(buf), f"at least {_INT16.size}")
    value: int = _INT16.unpack_from(buf)[0]
    return value
