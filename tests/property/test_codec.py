"""The compiled decoders and the slow twin agree on every message and version."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from protocol import codec, twin
from protocol.compiler.bounded import compile_bounded
from protocol.compiler.plan import plan_message
from protocol.compiler.steps import compile_steps
from protocol.decoding import UNREADABLE, why_unreadable
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
    """Return the decoded message and its end, or ProtocolError if the decoder refuses the bytes."""
    try:
        return decode(cls, data, version)
    except ProtocolError as error:
        # The twin found the reason, or looked no further; else only the fast path would refuse.
        assert error.allowed != "bytes of the schema" or "behind the first" in str(error.value)
        return ProtocolError


@cache
def step_decoder(cls: type[Message], version: int) -> Any:
    """A decoder that pauses after each element, tagged field and portion."""
    return compile_steps(plan_message(cls, version), step_work=0)


@cache
def bounded_decoder(cls: type[Message], version: int) -> Any:
    """A decoder that stops at a message of much work; none of these is."""
    return compile_bounded(plan_message(cls, version), work=1 << 30)


def decode_bounded(cls: type[Message], data: Any, version: int, offset: int = 0) -> Any:
    """Decode as a frame above `WHOLE_BYTES` is decoded."""
    view = memoryview(data)
    try:
        return bounded_decoder(cls, version)(view, offset, len(view))
    except UNREADABLE as error:
        raise why_unreadable(cls, view, version, offset, error) from None


def decode_in_steps(cls: type[Message], data: Any, version: int, offset: int = 0) -> Any:
    """Decode with no more memory than each step requests."""
    view = memoryview(data)
    steps = step_decoder(cls, version)(view, offset, len(view), 0, [])
    needed = None
    try:
        while True:
            needed = steps.send(needed)
    except StopIteration as end:
        return end.value
    except UNREADABLE as error:
        raise why_unreadable(cls, view, version, offset, error) from None


def assert_same_outcome(cls: type[Message], data: bytes, version: int) -> None:
    fast = outcome(codec.decode, cls, data, version)
    slow = outcome(twin.decode, cls, data, version)
    stepped = outcome(decode_in_steps, cls, data, version)
    bounded = outcome(decode_bounded, cls, data, version)
    assert stepped == slow or repr(stepped) == repr(slow)
    assert bounded == slow or repr(bounded) == repr(slow)
    assert fast == slow or repr(fast) == repr(slow)  # not-a-number differs from itself


def check(cls: type[Message], version: int, msg: Message, damage: tuple[int, int]) -> None:
    data = twin.encode(msg, version)
    assert codec.encode(msg, version) == data
    assert b"".join(codec.encode_parts(msg, version, b"head")) == b"head" + data
    for whole in (data, bytearray(data), memoryview(data)):
        assert codec.decode(cls, whole, version) == (msg, len(data))
        assert decode_in_steps(cls, whole, version) == (msg, len(data))
        assert decode_bounded(cls, whole, version) == (msg, len(data))
    assert twin.decode(cls, data, version) == (msg, len(data))
    assert codec.decode(cls, b"??" + data + b"tail", version, 2) == (msg, len(data) + 2)
    for cut in range(0, len(data), max(1, len(data) // CUTS)):
        assert outcome(codec.decode, cls, data[:cut], version) is ProtocolError
        assert outcome(decode_in_steps, cls, data[:cut], version) is ProtocolError
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
        slow = outcome(twin.decode, cls, data, version)
        assert outcome(codec.decode, cls, data, version) == slow
        assert outcome(decode_in_steps, cls, data, version) == slow
        assert outcome(decode_bounded, cls, data, version) == slow

    run()
