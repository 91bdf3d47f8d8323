"""Records compared with bytes of Kafka 4.3.1 (GroupCoordinatorRecordHelpers and its serde)."""

from __future__ import annotations

import pytest

from broker.coordinators.group.hard_state import EMPTY_STATE, replay
from broker.coordinators.group.records import (
    CommittedOffset,
    ForeignGroupRecord,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    ParsedRecord,
    PersistedMember,
    TopicPartition,
    encode_record,
    parse_record,
)
from protocol.codec import encode
from protocol.errors import ProtocolError
from protocol.internal.group_metadata import GroupMetadataValue
from protocol.internal.offset_commit import OffsetCommitValue
from runtime.errors import InvariantViolated

AT = TopicPartition("topic-a", 3)
AT_KEY = "000100036772700007746f7069632d6100000003"
GROUP_KEY = "00020003677270"
TOPIC_ID = bytes(range(1, 17))
NOW_MS = 1_700_000_000_000

MEMBERS = (
    PersistedMember(
        "m1", "inst", "client", "/127.0.0.1", 60_000, 10_000, b"\x01\x02\x03", b"\x05\x06"
    ),
    PersistedMember("m2", None, "c2", "/10.0.0.2", 30_000, 9_000, b"\x09", b""),
)

GOLDEN: list[tuple[ParsedRecord, str, str | None]] = [
    (
        OffsetRecord("grp", AT, CommittedOffset(42, 7, "meta", NOW_MS)),
        AT_KEY,
        "0004000000000000002a00000007056d6574610000018bcfe5680000",
    ),
    (
        OffsetRecord("grp", AT, CommittedOffset(42, -1, "", NOW_MS)),
        AT_KEY,
        "0004000000000000002affffffff010000018bcfe5680000",
    ),
    (
        OffsetRecord("grp", AT, CommittedOffset(42, -1, "meta", NOW_MS, NOW_MS + 60_000)),
        AT_KEY,
        "0001000000000000002a00046d6574610000018bcfe568000000018bcfe65260",
    ),
    (
        OffsetRecord("grp", AT, CommittedOffset(42, 7, "meta", NOW_MS, topic_id=TOPIC_ID)),
        AT_KEY,
        "0004000000000000002a00000007056d6574610000018bcfe568000100100102030405060708090a0b0c0d0e0f10",
    ),
    (OffsetRecord("grp", AT, None), AT_KEY, None),
    (
        GroupRecord("grp", GroupMetadata("", 0, None, None, NOW_MS)),
        GROUP_KEY,
        "0003000000000000ffffffff0000018bcfe5680000000000",
    ),
    (
        GroupRecord("grp", GroupMetadata("consumer", 1, "range", "m1", NOW_MS, MEMBERS)),
        GROUP_KEY,
        "00030008636f6e73756d657200000001000572616e676500026d310000018bcfe568000000000200026d31"
        "0004696e73740006636c69656e74000a2f3132372e302e302e310000ea6000002710000000030102030000"
        "00020506"
        "00026d32ffff0002633200092f31302e302e302e320000753000002328000000010900000000",
    ),
    (GroupRecord("grp", None), GROUP_KEY, None),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_bytes_are_those_of_kafka(record: ParsedRecord, key: str, value: str | None) -> None:
    expected = (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert encode_record(record) == expected
    assert parse_record(*expected) == record


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_cut_records_are_refused(record: ParsedRecord, key: str, value: str | None) -> None:
    whole_key = bytes.fromhex(key)
    for size in range(len(whole_key)):
        with pytest.raises(ProtocolError):
            parse_record(whole_key[:size], None)
    if value is not None:
        whole = bytes.fromhex(value)
        for size in range(len(whole)):
            with pytest.raises(ProtocolError):
                parse_record(whole_key, whole[:size])


def test_legacy_offset_records() -> None:
    key = b"\x00\x00" + bytes.fromhex(AT_KEY)[2:]
    for version in range(5):
        value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
        record = parse_record(key, version.to_bytes(2, "big") + encode(value, version))
        assert record == OffsetRecord("grp", AT, CommittedOffset(5, -1, "m", 9))


@pytest.mark.parametrize("version", range(5))
def test_group_records_of_all_versions(version: int) -> None:
    member = GroupMetadataValue.MemberMetadata(member_id="m", session_timeout=7)
    if version >= 1:
        member.rebalance_timeout = 9
    value = GroupMetadataValue(generation=3, members=[member])
    data = version.to_bytes(2, "big") + encode(value, version)
    record = parse_record(bytes.fromhex(GROUP_KEY), data)
    assert isinstance(record, GroupRecord) and record.value is not None
    (parsed,) = record.value.members
    assert parsed.session_timeout_ms == 7
    assert parsed.rebalance_timeout_ms == (9 if version >= 1 else 7)


def test_kinds_from_the_future_are_skipped() -> None:
    assert parse_record(b"\x00\x63abc", b"xyz") is None


@pytest.mark.parametrize("kind", [b"\x00\x01", b"\x00\x02"])
def test_values_from_the_future_are_refused(kind: bytes) -> None:
    key = kind + bytes.fromhex(AT_KEY if kind == b"\x00\x01" else GROUP_KEY)[2:]
    with pytest.raises(ProtocolError, match="version 5"):
        parse_record(key, b"\x00\x05" + bytes(60))


@pytest.mark.parametrize(("kind", "name"), [(3, "Consumer"), (11, "Share"), (17, "Streams")])
def test_groups_of_other_types_are_noticed(kind: int, name: str) -> None:
    key = kind.to_bytes(2, "big") + b"\x00\x01g"
    record = ForeignGroupRecord("g", name, True)
    assert parse_record(key, b"\x00\x00anything") == record
    assert parse_record(key, None) == record._replace(exists=False)
    with pytest.raises(InvariantViolated):
        encode_record(record)
    known = replay(EMPTY_STATE, record)
    assert dict(known.foreign) == {"g": name}
    assert replay(known, record._replace(exists=False)) == EMPTY_STATE
