"""Keys of the objects of a remote segment.

    <topic id>/<partition>/<segment id>.<kind>

Topic and segment ids are in Kafka's text form. Keys contain the topic id, not the name: a new topic
of an old name must never touch the old one's objects (S10). The manifest is written last and
deleted first: if it exists, the segment was complete.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from protocol.ids import TopicId, uuid_from_text, uuid_to_text
from storage.tiered.values import RemotePartition, RemoteSegment, SegmentId


class Kind(Enum):
    """The objects of a segment; the value is the key's suffix."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    MANIFEST = "manifest"


_KINDS = {kind.value: kind for kind in Kind}


class ParsedKey(NamedTuple):
    """The parts of a key."""

    topic_id: TopicId
    partition: int
    segment_id: SegmentId
    kind: Kind


def topic_folder(topic_id: TopicId) -> str:
    return uuid_to_text(topic_id)


def partition_folder(partition: RemotePartition) -> str:
    return f"{topic_folder(partition.topic_id)}/{partition.partition}"


def object_key(segment: RemoteSegment, kind: Kind) -> str:
    folder = partition_folder(segment.partition)
    return f"{folder}/{uuid_to_text(segment.segment_id)}.{kind.value}"


def keys_to_delete(segment: RemoteSegment) -> list[str]:
    """Return the keys of all objects that a segment may have, the manifest first."""
    others = [object_key(segment, kind) for kind in Kind if kind is not Kind.MANIFEST]
    return [object_key(segment, Kind.MANIFEST), *others]


def parse_key(key: str) -> ParsedKey | None:
    """Parse a key; None if it does not belong to a segment."""
    parts = key.split("/")
    if len(parts) != 3:
        return None
    topic_text, number, name = parts
    segment_text, dot, kind = name.partition(".")
    if not dot or kind not in _KINDS or not number.isascii() or not number.isdigit():
        return None
    try:
        topic_id = TopicId(uuid_from_text(topic_text))
        return ParsedKey(topic_id, int(number), uuid_from_text(segment_text), _KINDS[kind])
    except ValueError:
        return None
