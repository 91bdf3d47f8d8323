"""Encoding in steps, with the same bytes as encoding at once."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import EncodeError
from protocol.messages import REMOVED_APIS, response_class
from protocol.messages.fetch import FetchResponse
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.schema import Buffer, Struct
from protocol.sliced_encoding import STEP_WEIGHT, encode_steps

COUNT = 120
BUILT = [api for api in ApiKey if api not in REMOVED_APIS]


def filled(cls: type[Struct], count: int) -> Any:
    """Return a struct whose lists of structs have elements with lists of their own."""
    value = cls()
    for field in cls.FIELDS:
        element = field.kind.element
        if element is not None and element.struct_name:
            inner = cls.struct_class(element)
            setattr(value, field.name, [filled(inner, 2) for _ in range(count)])
    return value


def in_steps(message: Any, version: int) -> tuple[bytes, int]:
    parts: list[Buffer] = []
    heaviest = max(encode_steps(message, version, parts))
    return b"".join(parts), heaviest


@pytest.mark.parametrize(
    "api", [api for api in ApiKey if api not in REMOVED_APIS], ids=lambda api: api.name
)
def test_steps_of_any_response_give_the_bytes_of_the_codec(api: ApiKey) -> None:
    cls = response_class(api)
    for version in cls.VERSIONS.each():
        message = filled(cls, COUNT)
        try:
            expected = encode(message, version)
        except EncodeError:
            continue  # a list that this version does not have
        encoded, heaviest = in_steps(message, version)
        assert encoded == expected
        assert heaviest <= STEP_WEIGHT


def test_steps_leave_null_lists_and_record_sets_as_they_are() -> None:
    data = FetchResponse.PartitionData(records=bytes(2_000), aborted_transactions=None)
    message = FetchResponse(
        responses=[FetchResponse.FetchableTopicResponse(partitions=[data] * COUNT)]
    )
    for version in (4, 12, 18):
        assert in_steps(message, version)[0] == encode(message, version)


def test_a_long_list_inside_an_element_is_encoded_in_steps_too() -> None:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse(
        name="t", partitions=[ListOffsetsResponse.ListOffsetsPartitionResponse()] * 10_000
    )
    encoded, heaviest = in_steps(ListOffsetsResponse(topics=[topic]), 11)
    assert encoded == encode(ListOffsetsResponse(topics=[topic]), 11)
    assert heaviest <= STEP_WEIGHT
