"""Large lists and malformed ends (`fuzz.heavy`) are what they are named, each of its API."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fuzz.heavy import HeavyFrame, heavy_frames, hello
from fuzz.hostile import SKIPPED, Facts, Hostile
from protocol.api_keys import ApiKey
from protocol.decoding import Allowance, Decoding
from protocol.errors import ProtocolError
from protocol.headers import decode_request_header
from protocol.messages import request_class

ELEMENTS = 3_000
REMOVED = {"LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN"}


def all_frames() -> Iterator[HeavyFrame]:
    served = {
        api: [request_class(api).VERSIONS.last]
        for api in ApiKey
        if api.name not in REMOVED and api not in SKIPPED
    }
    return heavy_frames(Hostile(random.Random(1), Facts()), served, ELEMENTS, 20_000)


def body_of(frame: HeavyFrame) -> bytes:
    data = b"".join(map(bytes, frame.parts))
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def decoded(frame: HeavyFrame) -> object:
    data = body_of(frame)
    header, offset = decode_request_header(data)
    assert (header.api_key, header.api_version) == (frame.api, frame.version)
    decoding = Decoding(
        request_class(frame.api), memoryview(data), frame.version, offset, Allowance()
    )
    while not decoding.step():
        pass
    assert decoding.end == len(data)
    return decoding.message


def test_frames_hold_large_lists_or_are_refused() -> None:
    kinds = set()
    for frame in all_frames():
        kinds.add(frame.api)
        if frame.is_refused:
            with pytest.raises(ProtocolError):
                decoded(frame)
        else:
            assert len(getattr(decoded(frame), frame.kind)) == ELEMENTS
    assert len(kinds) > 60


def test_first_frame_of_a_connection_is_small() -> None:
    assert sum(map(len, hello())) < 100
