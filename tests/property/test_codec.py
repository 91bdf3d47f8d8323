"""The compiled codec and its slow twin agree, on every message in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from protocol import codec, twin
from protocol.errors import ProtocolError
from protocol.schema import Message
from testkit.records.messages import EXAMPLES, message_versions, messages_of, name_of

CUTS = 24

few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def outcome(decode: Any, cls: type[Message], data: bytes, version: int) -> Any:
    """What a decoder makes of bytes: the message and its end, or that it refuses them."""
    try:
        return decode(cls, data, version)
    except ProtocolError as error:
        # The twin found the reason; this sentence would mean that only the fast path refused.
        assert error.allowed != "bytes of the schema"
        return ProtocolError


def assert_same_outcome(cls: type[Message], data: bytes, version: int) -> None:
    fast = outcome(codec.decode, cls, data, version)
    slow = outcome(twin.decode, cls, data, version)
    assert fast == slow or repr(fast) == repr(slow)  # not-a-number differs from itself


def check(cls: type[Message], version: int, msg: Message, damage: tuple[int, int]) -> None:
    data = twin.encode(msg, version)
    assert codec.encode(msg, version) == data
    assert b"".join(codec.encode_parts(msg, version, b"head")) == b"head" + data
    for whole in (data, bytearray(data), memoryview(data)):
        assert codec.decode(cls, whole, version) == (msg, len(data))
    assert twin.decode(cls, data, version) == (msg, len(data))
    assert codec.decode(cls, b"??" + data + b"tail", version, 2) == (msg, len(data) + 2)
    for cut in range(0, len(data), max(1, len(data) // CUTS)):
        assert outcome(codec.decode, cls, data[:cut], version) is ProtocolError
        assert outcome(twin.decode, cls, data[:cut], version) is ProtocolError
    if data:
        position, byte = damage
        broken = bytearray(data)
        broken[position % len(data)] = byte
        assert_same_outcome(cls, bytes(broken), version)


@pytest.mark.parametrize(("cls", "version"), message_versions(), ids=name_of)
def test_fast_codec_equals_twin(cls: type[Message], version: int) -> None:
    messages = messages_of(cls, version, unknown_tags=True)
    damages = st.tuples(st.integers(0, 1000), st.integers(0, 255))

    @few
    @given(messages, damages)
    def run(msg: Message, damage: tuple[int, int]) -> None:
        check(cls, version, msg, damage)

    run()


@pytest.mark.parametrize(("cls", "version"), message_versions(), ids=name_of)
def test_arbitrary_bytes_are_judged_alike(cls: type[Message], version: int) -> None:
    @few
    @given(st.binary(max_size=60))
    def run(data: bytes) -> None:
        assert outcome(codec.decode, cls, data, version) == outcome(twin.decode, cls, data, version)

    run()
