"""Files of a log directory as plain values, for `kraftbox dump-log` and for tests.

Files of a running node can be read, too. An incomplete last batch ends the listing without an
error, unless its bytes show that it can never be complete.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from protocol.batch.header import BatchHeader, crc_ok, iter_batches
from protocol.batch.records import Record, read_batch
from protocol.codec import decode
from protocol.control import CONTROL_VERSION, EndTxnMarker, decode_control_value
from protocol.errors import ApiError, ProtocolError
from protocol.internal import (
    decode_group_key,
    decode_transaction_key,
    decode_versioned,
    value_class,
)
from protocol.json_form import to_json
from protocol.metadata import decode_record
from protocol.schema import CoordinatorRecord
from storage.log.producers import CorruptSnapshot, decode_snapshot

Item: TypeAlias = dict[str, Any]

_SEGMENT = re.compile(r"\d{20}\.log(\.deleted|\.swap|\.cleaned)?")
_METADATA_SNAPSHOT = re.compile(r"(\d{20}-\d{10}|bootstrap)\.checkpoint(\.deleted|\.part)?")
_INDEX = re.compile(r"\d{20}\.(index|timeindex|txnindex|snapshot)(\.deleted)?")
_TEXT = {
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "partition.metadata",
    "meta.properties",
    "quorum-state",
    ".kafka_cleanshutdown",
}
_control_key = struct.Struct(">hh")


class DamagedFile(Exception):
    """The rest of the file cannot be read; the message has the position and the reason."""


def is_known(path: Path) -> bool:
    """Return whether a file of a log directory can have this name."""
    name = path.name
    return name in _TEXT or any(
        pattern.fullmatch(name) for pattern in (_SEGMENT, _METADATA_SNAPSHOT, _INDEX)
    )


def dump_file(path: Path, decoder: str = "auto", *, records: bool = True) -> Iterator[Item]:
    """Yield the content of one file in order, as items that each have a `kind`.

    `decoder` is auto, data, metadata, offsets or transactions. Raises DamagedFile.
    """
    data = path.read_bytes()
    name = path.name.removesuffix(".deleted")
    if name in _TEXT:
        yield from _text_items(data)
    elif name.endswith(".index"):
        yield from _fixed(data, ">ii", ("relativeOffset", "position"), _base_offset(name))
    elif name.endswith(".timeindex"):
        yield from _fixed(data, ">qi", ("timestamp", "relativeOffset"), _base_offset(name))
    elif name.endswith(".txnindex"):
        columns = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
        yield from _fixed(data, ">hqqqq", columns, None)
    elif name.endswith(".snapshot"):
        yield from _producers(data)
    else:
        yield from _batches(data, _decoder_for(path, decoder), records)


def _decoder_for(path: Path, wanted: str) -> str:
    if wanted != "auto":
        return wanted
    directory = path.resolve().parent.name
    if directory.startswith("__cluster_metadata-") or ".checkpoint" in path.name:
        return "metadata"
    if directory.startswith("__consumer_offsets-"):
        return "offsets"
    if directory.startswith("__transaction_state-"):
        return "transactions"
    return "data"


def _base_offset(name: str) -> int:
    return int(name.partition(".")[0])


def _text_items(data: bytes) -> Iterator[Item]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise DamagedFile("not a text file") from None
    for line in lines:
        yield {"kind": "line", "text": line}


def _fixed(data: bytes, form: str, columns: tuple[str, ...], base: int | None) -> Iterator[Item]:
    entry = struct.Struct(form)
    whole = len(data) - len(data) % entry.size
    for at in range(0, whole, entry.size):
        values = dict(zip(columns, entry.unpack_from(data, at), strict=True))
        # Kafka preallocates indexes: zeros after the first entry are unused space.
        if base is not None and at and not any(values.values()):
            return
        if base is not None:
            values = {"offset": base + values.pop("relativeOffset"), **values}
        yield {"kind": "entry", **values}
    if whole != len(data):
        raise DamagedFile(f"{len(data) - whole} trailing bytes after the last entry")


def _producers(data: bytes) -> Iterator[Item]:
    try:
        states = decode_snapshot(data)
    except CorruptSnapshot as error:
        raise DamagedFile(str(error)) from None
    for state in states:
        yield {
            "kind": "producer",
            "producerId": state.producer_id,
            "producerEpoch": state.epoch,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": state.txn_first_offset,
            "lastTimestamp": state.last_timestamp_ms,
            "lastSequence": state.last_sequence,
            "lastOffset": state.last_offset,
        }


def _batches(data: bytes, decoder: str, records: bool) -> Iterator[Item]:
    end = 0
    try:
        for header, pos in iter_batches(data):
            end = pos + header.size_bytes
            valid = crc_ok(data, pos, header.size_bytes)
            yield _batch_item(header, pos, valid)
            if not valid:
                raise DamagedFile(f"wrong CRC at position {pos}")
            if records:
                for record in read_batch(data, pos, header):
                    yield _record_item(record, header, decoder)
    except (ProtocolError, ApiError) as error:
        # Space that Kafka preallocated is zero up to the end of the file.
        if any(data[end:]):
            raise DamagedFile(f"after position {end}: {error}") from None


def _batch_item(header: BatchHeader, pos: int, valid: bool) -> Item:
    return {
        "kind": "batch",
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "position": pos,
        "size": header.size_bytes,
        "leaderEpoch": header.leader_epoch,
        "codec": header.compression.name.lower(),
        "timestampType": header.timestamp_type.name,
        "maxTimestamp": header.max_timestamp,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "crc": header.crc,
        "valid": valid,
    }


def _record_item(record: Record, header: BatchHeader, decoder: str) -> Item:
    item: Item = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
    if record.headers:
        item["headers"] = [[name, _printable(value)] for name, value in record.headers]
    if header.is_control:
        return {**item, "kind": "control", **_control(record)}
    try:
        return {**item, **_CONTENT[decoder](record)}
    except ProtocolError as error:
        return {**item, **_plain(record), "undecoded": str(error)}


def _control(record: Record) -> Item:
    _, kind = _control_key.unpack_from(record.key or b"\0\0\0\0")
    value = record.value or b""
    if kind in (0, 1):
        marker, _ = decode(EndTxnMarker, value, 0, 2)
        outcome = "ABORT" if kind == 0 else "COMMIT"
        return {"type": outcome, "coordinatorEpoch": marker.coordinator_epoch}
    message = decode_control_value(kind, value)
    return {"type": type(message).__name__, "value": to_json(message, CONTROL_VERSION)}


def _plain(record: Record) -> Item:
    return {"key": _printable(record.key), "value": _printable(record.value)}


def _metadata(record: Record) -> Item:
    message, version = decode_record(record.value or b"")
    return {"type": type(message).__name__, "version": version, "value": to_json(message, version)}


def _coordinator(
    decode_key: Callable[[bytes], CoordinatorRecord],
) -> Callable[[Record], Item]:
    def content(record: Record) -> Item:
        key = decode_key(record.key or b"")
        item: Item = {"type": type(key).__name__.removesuffix("Key"), "key": to_json(key, 0)}
        if record.value is None:
            return {**item, "value": None, "tombstone": True}
        value, version = decode_versioned(value_class(type(key)), record.value)
        return {**item, "version": version, "value": to_json(value, version)}

    return content


_CONTENT: dict[str, Callable[[Record], Item]] = {
    "data": _plain,
    "metadata": _metadata,
    "offsets": _coordinator(decode_group_key),
    "transactions": _coordinator(decode_transaction_key),
}


def _printable(value: bytes | None) -> str | None:
    """Return text unchanged, and other bytes as base64 with the prefix `base64:`."""
    if value is None:
        return None
    try:
        text = bytes(value).decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()
    return text if text.isprintable() else json.dumps(text)
