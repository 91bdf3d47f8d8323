"""Unsigned varints."""

from __future__ import annotations

import pytest

from protocol.errors import EncodeError, ProtocolError
from protocol.varint import MAX_UVARINT, decode_uvarint, encode_uvarint


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (MAX_UVARINT, b"\xff\xff\xff\xff\x07"),
    ],
)
def test_there_and_back(value: int, data: bytes) -> None:
    assert encode_uvarint(value) == data
    assert decode_uvarint(b"?" + data + b"?", 1, "x") == (value, 1 + len(data))
    for cut in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_uvarint(data[:cut], 0, "x")


@pytest.mark.parametrize("value", [-1, MAX_UVARINT + 1])
def test_range(value: int) -> None:
    with pytest.raises(EncodeError):
        encode_uvarint(value)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x08", b"\x80\x80\x80\x80\x80\x01"])
def test_too_large(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="a count"):
        decode_uvarint(data, 0, "a count")
