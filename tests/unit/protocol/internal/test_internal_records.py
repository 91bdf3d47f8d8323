"""Keys and values of internal topics, the consumer protocol, and records of tiered storage."""

from __future__ import annotations

import pytest

from protocol.errors import ProtocolError
from protocol.internal import (
    GROUP_RECORDS,
    REMOTE_LOG_RECORDS,
    decode_group_key,
    decode_remote_log_record,
    decode_transaction_key,
    decode_versioned,
    encode_key,
    encode_versioned,
    value_class,
)
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.internal.remote_log_segment_metadata_record import RemoteLogSegmentMetadataRecord
from protocol.internal.transaction_log import TransactionLogKey, TransactionLogValue
from protocol.record_frame import encode_framed


def test_offset_commit_as_kafka_writes_it() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    data = encode_key(key)
    assert data == b"\0\x01" + b"\0\x01g" + b"\0\x01t" + b"\0\0\0\x01"
    assert decode_group_key(data) == key
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    data = encode_versioned(value, 3)
    assert data == b"\0\x03" + bytes(7) + b"\x05" + b"\0\0\0\x02" + b"\0\x01m" + bytes(7) + b"\x09"
    assert decode_versioned(OffsetCommitValue, data) == (value, 3)


def test_value_class_of_key() -> None:
    assert value_class(GroupMetadataKey) is GroupMetadataValue
    assert value_class(TransactionLogKey) is TransactionLogValue


def test_every_group_record_type() -> None:
    for number in GROUP_RECORDS:
        found = decode_group_key(number.to_bytes(2, "big") + bytes(200))
        assert number == found.RECORD_TYPE
        assert number == value_class(type(found)).RECORD_TYPE


def test_transaction_keys() -> None:
    key = TransactionLogKey(transactional_id="x")
    assert decode_transaction_key(encode_key(key)) == key


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\x09", b"\0\x18\0", b"\xff\xff", b"\0\x01\0\x05a"]
)
def test_broken_keys(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_group_key(data)


def test_unknown_value_version() -> None:
    with pytest.raises(ProtocolError, match="version of OffsetCommitValue"):
        decode_versioned(OffsetCommitValue, b"\0\x05" + bytes(50))
    with pytest.raises(ProtocolError, match="bytes for version"):
        decode_versioned(OffsetCommitValue, b"\0")


def test_newer_consumer_protocol_is_read_as_the_latest_known() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a"], rack_id="r")
    newer = b"\0\x09" + encode_versioned(subscription, 3)[2:] + b"something new"
    found, version = decode_versioned(ConsumerProtocolSubscription, newer, newer_as_latest=True)
    assert (found, version) == (subscription, 9)
    with pytest.raises(ProtocolError):
        decode_versioned(ConsumerProtocolSubscription, newer)
    with pytest.raises(ProtocolError):
        decode_versioned(ConsumerProtocolSubscription, b"\xff\xff\0", newer_as_latest=True)


def test_tiered_storage_records() -> None:
    record = RemoteLogSegmentMetadataRecord(broker_id=4)
    assert decode_remote_log_record(encode_framed(record, 0)) == (record, 0)
    assert sorted(REMOTE_LOG_RECORDS) == [0, 1, 2, 3]
    with pytest.raises(ProtocolError, match="remote log record type"):
        decode_remote_log_record(b"\x01\x09\x00")
