"""The values of control records."""

from __future__ import annotations

import pytest

from protocol.control import (
    CONTROL_CLASSES,
    LeaderChangeMessage,
    decode_control_value,
    encode_control_value,
)
from protocol.errors import EncodeError, ProtocolError

Voter = LeaderChangeMessage.Voter


def test_leader_change_as_kafka_writes_it() -> None:
    record = LeaderChangeMessage(
        leader_id=3, voters=[Voter(voter_id=1), Voter(voter_id=3)], granting_voters=[]
    )
    data = encode_control_value(record)
    assert data == b"\0\0" + b"\0\0\0\x03" + b"\x03\0\0\0\x01\0\0\0\0\x03\0" + b"\x01" + b"\0"
    assert decode_control_value(2, data) == record


def test_every_type() -> None:
    assert sorted(CONTROL_CLASSES) == [2, 3, 4, 5, 6]
    for number, cls in CONTROL_CLASSES.items():
        assert decode_control_value(number, encode_control_value(cls())) == cls()


@pytest.mark.parametrize("number", [0, 1, 7, -1])
def test_types_that_are_not_of_kraft(number: int) -> None:
    with pytest.raises(ProtocolError, match="type of a KRaft control record"):
        decode_control_value(number, b"\0\0")


def test_directory_ids_do_not_fit_into_the_version_kraft_writes() -> None:
    record = LeaderChangeMessage(voters=[Voter(voter_directory_id=b"d" * 16)])
    with pytest.raises(EncodeError, match="voter_directory_id"):
        encode_control_value(record)
