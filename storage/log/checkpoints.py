"""Encoders and decoders of the small text files of a log directory, in Kafka's formats.

    leader-epoch-checkpoint          version, count, then `epoch start` per line
    *-offset-checkpoint              version, count, then `topic partition offset` per line
    partition.metadata               `version: 0` and `topic_id: <uuid>`
    .kafka_cleanshutdown             JSON with version and broker epoch (KIP-966)

They do no I/O. Decoders raise CorruptCheckpoint for an unreadable file; callers rebuild its
content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from protocol.ids import ZERO_UUID, TopicId, uuid_from_text, uuid_to_text
from storage.log.epochs import EpochEntry

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

NO_BROKER_EPOCH: Final = -1

_VERSION = 0
_LINES_MAX = 10_000_000

TopicPartition = tuple[str, int]


class CorruptCheckpoint(ValueError):
    """A checkpoint file that is truncated, garbled or of an unknown version."""


def _encode_lines(lines: Iterable[str]) -> bytes:
    rows = list(lines)
    return "\n".join([str(_VERSION), str(len(rows)), *rows, ""]).encode()


def _decode_lines(data: bytes, columns: int) -> list[list[str]]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptCheckpoint("not text") from None
    lines = text.split("\n")
    if len(lines) < 3 or lines[0] != str(_VERSION):
        raise CorruptCheckpoint(f"version {lines[0][:20]!r}, {_VERSION} is known")
    count = _number(lines[1])
    if not 0 <= count <= _LINES_MAX or len(lines) < count + 3 or any(lines[count + 2 :]):
        raise CorruptCheckpoint(f"{count} lines announced, {len(lines) - 3} found")
    rows = [line.split() for line in lines[2 : count + 2]]
    for row in rows:
        if len(row) != columns:
            raise CorruptCheckpoint(f"{len(row)} columns, {columns} expected")
    return rows


def _number(text: str) -> int:
    digits = text[1:] if text.startswith("-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        raise CorruptCheckpoint(f"{text[:40]!r} is not a number")
    return int(text)


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return _encode_lines(f"{epoch} {start}" for epoch, start in entries)


def decode_epochs(data: bytes) -> list[EpochEntry]:
    """Decode leader-epoch-checkpoint. Raises CorruptCheckpoint, also if epochs or offsets
    decrease."""
    entries = [EpochEntry(_number(a), _number(b)) for a, b in _decode_lines(data, 2)]
    for earlier, later in zip(entries, entries[1:], strict=False):
        if earlier.epoch >= later.epoch or earlier.start_offset > later.start_offset:
            raise CorruptCheckpoint(f"epoch {later} after {earlier}")
    if entries and (entries[0].epoch < 0 or entries[0].start_offset < 0):
        raise CorruptCheckpoint(f"negative epoch entry {entries[0]}")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _encode_lines(
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    )


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint. Raises CorruptCheckpoint."""
    return {
        (topic, _number(partition)): _number(offset)
        for topic, partition, offset in _decode_lines(data, 3)
    }


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


PARTITION_METADATA_BYTES_MIN: Final = len(encode_partition_metadata(TopicId(ZERO_UUID)))
"""A shorter file was truncated by a crash."""


def decode_partition_metadata(data: bytes) -> TopicId:
    """Decode the topic id. Raises CorruptCheckpoint, also for the zero id."""
    fields: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields[name.strip()] = value.strip()
    if fields.get("version") != str(_VERSION):
        raise CorruptCheckpoint(f"partition.metadata of version {fields.get('version')!r}")
    try:
        topic_id = uuid_from_text(fields.get("topic_id", ""))
    except ValueError as error:
        raise CorruptCheckpoint(f"partition.metadata: {error}") from None
    if topic_id == ZERO_UUID:
        raise CorruptCheckpoint("partition.metadata: the zero topic id")
    return TopicId(topic_id)


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps(
        {"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")
    ).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch at the clean shutdown; -1 if the file lacks it (older versions)."""
    try:
        content = json.loads(data)
        return int(content["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
