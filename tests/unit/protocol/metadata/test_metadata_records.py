"""The frame of metadata records and their registry."""

from __future__ import annotations

import pytest

from protocol.errors import EncodeError, ProtocolError
from protocol.metadata import (
    RECORD_CLASSES,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
)

TOPIC = TopicRecord(name="foo", topic_id=bytes(range(16)))


def test_frame() -> None:
    assert encode_record(NoOpRecord(), 0) == b"\x01\x14\x00\x00"
    data = encode_record(TOPIC, 0)
    assert data == b"\x01\x02\x00\x04foo" + bytes(range(16)) + b"\x00"
    assert decode_record(data) == (TOPIC, 0)
    assert decode_record(memoryview(data)) == (TOPIC, 0)


def test_every_record_in_every_version() -> None:
    assert len(RECORD_CLASSES) == 27
    for number, cls in RECORD_CLASSES.items():
        assert number == cls.RECORD_TYPE
        for version in cls.VERSIONS.each():
            assert decode_record(encode_record(cls(), version)) == (cls(), version)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "bytes for frame version at 0"),
        (b"\x00\x02\x00", "frame version of a record"),
        (b"\x02\x02\x00", "frame version of a record"),
        (b"\x01\x06\x00", "metadata record type"),
        (b"\x01\xff\x01\x00", "metadata record type"),
        (b"\x01\x02\x01", "version of TopicRecord"),
        (b"\x01\x14\x00\x00\x00", "bytes after a NoOpRecord"),
    ],
)
def test_broken_frames(data: bytes, what: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_record(data)
    assert caught.value.what == what


def test_truncated_records() -> None:
    data = encode_record(TOPIC, 0)
    for cut in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_record(data[:cut])


def test_a_version_that_lacks_a_value() -> None:
    record = PartitionRecord(directories=[b"d" * 16])
    with pytest.raises(EncodeError, match="directories"):
        encode_record(record, 0)
