"""Records of `__consumer_offsets`, byte for byte as Kafka 4.3 writes them.

Key and value each begin with an int16: in the key it is the kind of the record, in the value the
version of the value. Written here:

- offset commit: key kind 1; value version 4, or 1 when the client requested an expiry of its own
  (OffsetCommit v2-4), as version 4 has no field for it;
- group metadata: key kind 2, value version 3;
- a null value is a tombstone.

Offsets of a transaction are offset commits in a batch of its producer, and a marker ends the
transaction in the partition.

Read here: all value versions, the legacy key kind 0, and enough of the other group types (consumer,
share, streams) to recognise their group ids. Unknown later kinds are skipped, so that a downgrade
finds its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from broker.coordinators.log_entries import (
    EndMarker,
    EndOfTransaction,
    KeyValue,
    LogBatch,
    LogEntry,
    PlainBatch,
    TransactionalBatch,
)
from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.ids import ZERO_UUID
from protocol.internal.consumer_group_metadata import ConsumerGroupMetadataKey
from protocol.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol.internal.legacy_offset_commit import LegacyOffsetCommitKey
from protocol.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.internal.share_group_metadata import ShareGroupMetadataKey
from protocol.internal.streams_group_metadata import StreamsGroupMetadataKey
from protocol.schema import CoordinatorRecord
from runtime.errors import InvariantViolated, invariant

Record: TypeAlias = KeyValue

NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
NOT_APPENDED: Final = -1
"""Log offset of a record that is only decided."""

_OFFSET_VALUE_VERSION: Final = 4
_OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VALUE_VERSION: Final = 3
_GROUP_VALUE_MAX_VERSION: Final = 4
_OFFSET_VALUE_MAX_VERSION: Final = 4

_FOREIGN_KEYS: Final[dict[int, tuple[type[CoordinatorRecord], str]]] = {
    3: (ConsumerGroupMetadataKey, "Consumer"),
    11: (ShareGroupMetadataKey, "Share"),
    17: (StreamsGroupMetadataKey, "Streams"),
}


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """A committed offset. `expire_timestamp_ms` is NO_TIMESTAMP unless the client set it
    (OffsetCommit v2-4); `topic_id` is zero when the client named the topic by name only."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID


class PersistedMember(NamedTuple):
    """A member in a group's record. `subscription`: its metadata for the protocol the group
    selected."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A group's record. `protocol_type` is "" when the group never had members; `protocol` and
    `leader` have the value None when it has no members now."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[PersistedMember, ...] = ()


class OffsetRecord(NamedTuple):
    group_id: str
    topic_partition: TopicPartition
    value: CommittedOffset | None


class PendingOffsetRecord(NamedTuple):
    """An offset that a transaction sent: it counts if the transaction is committed. `log_offset` is
    that of the record, NOT_APPENDED in a decision."""

    group_id: str
    topic_partition: TopicPartition
    value: CommittedOffset
    producer_id: int
    producer_epoch: int
    log_offset: int = NOT_APPENDED


class EndTransactionRecord(NamedTuple):
    """The marker that ends the transaction of a producer in this partition, as the transaction
    coordinator of `coordinator_epoch` requested it."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


class GroupRecord(NamedTuple):
    group_id: str
    value: GroupMetadata | None


class ForeignGroupRecord(NamedTuple):
    group_id: str
    type_name: str
    exists: bool


ParsedRecord: TypeAlias = OffsetRecord | GroupRecord | ForeignGroupRecord
"""Content of a record's key and value."""
ReplayedRecord: TypeAlias = ParsedRecord | PendingOffsetRecord | EndTransactionRecord
"""Changes of hard state: a record with the properties of its batch."""


def encode_batch(records: Sequence[ReplayedRecord]) -> LogBatch:
    """Return the batch for the records of one decision: plain records, the pending offsets of one
    producer, or one end of a transaction.

    Raises:
        InvariantViolated: the records do not fit into one batch.
        EncodeError: a value does not fit into its field.
    """
    first = records[0]
    if isinstance(first, EndTransactionRecord):
        invariant(len(records) == 1, "a marker needs a batch of its own")
        return EndMarker(*first)
    producer = _producer_of(first)
    invariant(
        all(_producer_of(each) == producer for each in records),
        "the records of one batch have several producers",
    )
    encoded = [encode_record(_content(each)) for each in records]
    return PlainBatch(encoded) if producer is None else TransactionalBatch(*producer, encoded)


def _producer_of(record: ReplayedRecord) -> tuple[int, int] | None:
    if isinstance(record, PendingOffsetRecord):
        return record.producer_id, record.producer_epoch
    return None


def _content(record: ReplayedRecord) -> ParsedRecord:
    if isinstance(record, PendingOffsetRecord):
        return OffsetRecord(record.group_id, record.topic_partition, record.value)
    if isinstance(record, EndTransactionRecord):
        raise InvariantViolated("a marker needs a batch of its own")
    return record


def parse_entry(entry: LogEntry) -> ReplayedRecord | None:
    """Return the change that an entry of the log makes, or None for an entry that is not used.

    Raises:
        ProtocolError: the bytes of a known kind cannot be parsed.
    """
    if isinstance(entry, EndOfTransaction):
        return EndTransactionRecord(*entry[1:])
    record = None if entry.key is None else parse_record(entry.key, entry.value)
    if (
        entry.producer_id >= 0
        and isinstance(record, OffsetRecord)
        and (value := record.value) is not None
    ):
        producer = entry.producer_id, entry.producer_epoch
        return PendingOffsetRecord(*record[:2], value, *producer, entry.offset)
    return record


def encode_record(record: ParsedRecord) -> Record:
    """Return the (key, value) bytes of a written record; `parse_record` is its inverse."""
    if isinstance(record, OffsetRecord):
        key = _offset_key(record.group_id, record.topic_partition)
        return key, None if record.value is None else _encode_offset(record.value)
    if isinstance(record, GroupRecord):
        key = b"\x00\x02" + encode(GroupMetadataKey(group=record.group_id), 0)
        return key, None if record.value is None else _encode_group(record.value)
    raise InvariantViolated(f"records of {record.type_name} groups cannot be written")


def _encode_offset(committed: CommittedOffset) -> bytes:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    has_expiry = committed.expire_timestamp_ms != NO_TIMESTAMP
    return _versioned(
        value, _OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else _OFFSET_VALUE_VERSION
    )


def _encode_group(group: GroupMetadata) -> bytes:
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in group.members
        ],
    )
    return _versioned(value, _GROUP_VALUE_VERSION)


def parse_record(key: bytes, value: bytes | None) -> ParsedRecord | None:
    """Return the content of a record, or None for a kind that this coordinator does not use.

    Raises:
        ProtocolError: the bytes of a known kind cannot be parsed.
    """
    kind = _prefix(key)
    if kind in (0, 1):
        return _parse_offset(key, value, legacy=kind == 0)
    if kind == 2:
        group_key, _ = decode(GroupMetadataKey, key, 0, 2)
        return GroupRecord(group_key.group, None if value is None else _parse_group(value))
    foreign = _FOREIGN_KEYS.get(kind)
    if foreign is None:
        return None
    key_class, type_name = foreign
    foreign_key, _ = decode(key_class, key, 0, 2)
    return ForeignGroupRecord(
        str(dict(foreign_key.items())["group_id"]), type_name, value is not None
    )


def _parse_offset(key: bytes, value: bytes | None, *, legacy: bool) -> OffsetRecord:
    group_id, at = _parse_offset_key(key, legacy=legacy)
    if value is None:
        return OffsetRecord(group_id, at, None)
    version = _prefix(value)
    if version > _OFFSET_VALUE_MAX_VERSION:
        raise ProtocolError(f"offset commit record of unknown version {version}")
    message, _ = decode(OffsetCommitValue, value, version, 2)
    committed = CommittedOffset(
        offset=message.offset,
        leader_epoch=message.leader_epoch,
        metadata=message.metadata,
        commit_timestamp_ms=message.commit_timestamp,
        expire_timestamp_ms=message.expire_timestamp,
        topic_id=message.topic_id,
    )
    return OffsetRecord(group_id, at, committed)


def _parse_offset_key(key: bytes, *, legacy: bool) -> tuple[str, TopicPartition]:
    if legacy:
        old, _ = decode(LegacyOffsetCommitKey, key, 0, 2)
        return old.group, TopicPartition(old.topic, old.partition)
    new, _ = decode(OffsetCommitKey, key, 0, 2)
    return new.group, TopicPartition(new.topic, new.partition)


def _parse_group(value: bytes) -> GroupMetadata:
    version = _prefix(value)
    if version > _GROUP_VALUE_MAX_VERSION:
        raise ProtocolError(f"group metadata record of unknown version {version}")
    message, _ = decode(GroupMetadataValue, value, version, 2)
    return GroupMetadata(
        protocol_type=message.protocol_type,
        generation=message.generation,
        protocol=message.protocol,
        leader=message.leader,
        state_timestamp_ms=message.current_state_timestamp,
        members=tuple(_parse_member(member) for member in message.members),
    )


def _parse_member(member: GroupMetadataValue.MemberMetadata) -> PersistedMember:
    # Version 0 has no rebalance timeout: the session timeout is used for both.
    rebalance_timeout_ms = member.rebalance_timeout
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = member.session_timeout
    return PersistedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _offset_key(group_id: str, at: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=at.topic, partition=at.partition)
    return b"\x00\x01" + encode(key, 0)


def _versioned(value: CoordinatorRecord, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


def _prefix(data: bytes) -> int:
    if len(data) < 2:
        raise ProtocolError(f"coordinator record of {len(data)} bytes without a version")
    return int.from_bytes(data[:2], "big", signed=True)
