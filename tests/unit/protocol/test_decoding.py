"""Messages of any size, decoded in steps: what is refused before memory is taken, and when."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from protocol import twin
from protocol.api_keys import ApiKey
from protocol.codec import FIELD_WORK_MAX, decode, decode_field
from protocol.compiler.bounded import WORK_AT_ONCE
from protocol.compiler.plan import SLOT_BYTES, Plan, PlannedField, plan_message
from protocol.compiler.steps import ELEMENTS_MAX, STEP_WORK, TAGS_MAX
from protocol.decoding import (
    EXCESS_BYTES_MAX,
    EXPLAINED_FIELDS,
    FREE_BYTES,
    FREED_AT_ONCE,
    MEMORY_FACTOR,
    WHOLE_BYTES,
    Allowance,
    Decoding,
    decode_at_once,
    free_in_steps,
)
from protocol.errors import ProtocolError
from protocol.messages import REMOVED_APIS, request_class
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.envelope import EnvelopeRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.produce import ProduceRequest
from protocol.metadata.register_controller_record import RegisterControllerRecord
from protocol.record_frame import decode_framed, encode_framed
from protocol.schema import Message
from protocol.varint import encode_uvarint


def names(count: int, last: bytes = b"\0\1a") -> bytes:
    """A Metadata request, version 1, for topics of one letter."""
    return struct.pack(">i", count) + b"\0\1a" * (count - 1) + last


def tagged(count: int) -> bytes:
    """An ApiVersions request, version 3, with empty tagged fields."""
    tags = b"".join(encode_uvarint(tag) + b"\0" for tag in range(count))
    return b"\x02a\x02b" + encode_uvarint(count) + tags


def steps_of(
    cls: type[Message], data: bytes, version: int, allowance: Allowance | None = None
) -> tuple[Any, int]:
    """The message, and the number of steps that it took."""
    decoding = Decoding(cls, memoryview(data), version, 0, allowance or Allowance())
    steps = 1
    while not decoding.step():
        steps += 1
    return decoding.message, steps


def refusal(cls: type[Message], data: bytes, version: int, steps_max: int = 1) -> ProtocolError:
    """Return the error that refuses a message within `steps_max` steps, with little memory."""
    decoding = Decoding(cls, memoryview(data), version, 0, Allowance())
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError) as caught:
            for _ in range(steps_max):
                assert not decoding.step()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000
    return caught.value


# --- limits


def test_tags_above_the_limit_are_refused_at_their_count() -> None:
    """KIP-482: a section of 2,000,000 unknown tagged fields took 180 MB."""
    error = refusal(ApiVersionsRequest, tagged(TAGS_MAX + 1), 3)
    assert (error.value, error.allowed) == (TAGS_MAX + 1, f"0-{TAGS_MAX}")
    assert len(decode(ApiVersionsRequest, tagged(TAGS_MAX), 3)[0].unknown_tags or {}) == TAGS_MAX


def test_tags_of_a_struct_with_known_ones_are_limited() -> None:
    """A Fetch request knows tags of its own."""
    cls = request_class(ApiKey.FETCH)
    head = bytes(4 + 4 + 4 + 1 + 4 + 4) + b"\x01\x01\x01"
    many = b"".join(encode_uvarint(tag) + b"\0" for tag in range(5, 5 + TAGS_MAX + 1))
    error = refusal(cls, head + encode_uvarint(TAGS_MAX + 1) + many, 17)
    assert error.value == TAGS_MAX + 1


def test_list_above_the_limit_is_refused_at_its_count() -> None:
    """Kafka 4.4: a list has at most 1,000,000 elements."""
    data = struct.pack(">i", ELEMENTS_MAX + 1) + bytes(2 * (ELEMENTS_MAX + 1))
    error = refusal(MetadataRequest, data, 0)
    assert (error.value, error.allowed) == (ELEMENTS_MAX + 1, f"0-{ELEMENTS_MAX}")
    with pytest.raises(ProtocolError):
        twin.decode(MetadataRequest, data, 0)


def test_list_whose_objects_exceed_the_memory_is_refused_at_its_count() -> None:
    """A million names of three bytes are a million objects of over a hundred."""
    error = refusal(MetadataRequest, names(ELEMENTS_MAX), 1)
    assert "memory of a decoded MetadataRequest" in str(error)


def test_lists_above_the_limit_together_are_refused() -> None:
    """A message of many objects holds the event loop when it is freed."""
    group = b"\2g" + encode_uvarint(110_001) + b"\2t\1\0" * 110_000 + b"\0"
    data = encode_uvarint(11) + group * 10 + b"\0\0"
    decoding = Decoding(OffsetFetchRequest, memoryview(data), 8, 0, Allowance(1 << 40), 1 << 40)
    with pytest.raises(ProtocolError, match="elements of all lists"):
        while not decoding.step():
            pass


def test_nested_lists_are_refused_when_their_sum_exceeds_the_memory() -> None:
    """No list alone is too large."""
    topic = b"\0\0" + struct.pack(">i", 10_000) + b"\1\0\0\0" * 10_000
    data = b"\0" + struct.pack(">i", 1_000) + topic * 1_000 + b"\0\0\0\0"
    size = len(data)
    allowance = Allowance()
    decoding = Decoding(ElectLeadersRequest, memoryview(data), 1, 0, allowance)
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="memory"):
        while not decoding.step():
            pass
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < MEMORY_FACTOR * size + FREE_BYTES + EXCESS_BYTES_MAX
    assert allowance.left_bytes == Allowance().left_bytes


@pytest.mark.parametrize("count", [10_000, 60_000])
def test_memory_of_objects_is_not_underestimated(count: int) -> None:
    """The estimate, by which frames are refused, is no less than what objects take."""
    data = struct.pack(">i", count) + b"".join(
        b"\0\4" + b"%04d" % (n % 10_000) for n in range(count)
    )
    allowance = Allowance(1 << 40)
    view = memoryview(data)
    tracemalloc.start()
    decoding = Decoding(MetadataRequest, view, 1, 0, allowance, 1 << 40)
    while not decoding.step():
        pass
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    granted = MEMORY_FACTOR * len(data) + FREE_BYTES + decoding.excess_bytes
    assert held_bytes < granted < 2 * held_bytes + 5 * FREE_BYTES


@pytest.mark.parametrize(
    "api",
    [
        api
        for api in ApiKey
        if api.name
        not in ("LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN")
    ],
)
def test_hundred_thousand_elements_fit_into_the_allowance(api: ApiKey) -> None:
    """Requests that Kafka serves are not refused: each list may have 100,000 elements, each with
    one element in each of its own lists."""
    cls = request_class(api)
    plan = plan_message(cls, cls.VERSIONS.last)

    def with_lists(f: Any) -> int:
        inner = f.element().object_bytes() if f.kind.element else 0
        nested = f.struct.plain if f.struct is not None else []
        return inner + sum(with_lists(g) for g in nested if g.kind.element)

    for f in plan.plain:
        if f.kind.element:
            assert 100_000 * with_lists(f) < EXCESS_BYTES_MAX, f.name


# --- the allowance


def test_decoding_takes_from_the_allowance_and_stop_gives_back() -> None:
    allowance = Allowance(30 << 20)
    data = names(60_000)
    decoding = Decoding(MetadataRequest, memoryview(data), 1, 0, allowance)
    while not decoding.step():
        pass
    assert decoding.excess_bytes == (30 << 20) - allowance.left_bytes > 0
    decoding.stop()
    decoding.stop()
    assert allowance.left_bytes == 30 << 20


def test_decoding_is_refused_when_the_allowance_is_used_up() -> None:
    with pytest.raises(ProtocolError, match="memory"):
        steps_of(MetadataRequest, names(60_000), 1, Allowance(0))


def test_message_of_few_objects_needs_no_allowance() -> None:
    request = EnvelopeRequest(request_data=bytes(3_000_000), client_host_address=b"abcd")
    data = twin.encode(request, 0)
    assert steps_of(EnvelopeRequest, data, 0, Allowance(0))[0] == request


# --- steps


def test_work_of_a_step_is_bounded() -> None:
    """Elements, numbers, tagged fields, text and bytes all count."""
    assert steps_of(MetadataRequest, names(10_000), 1)[1] >= 10_000 / (STEP_WORK + 1)
    assert steps_of(ApiVersionsRequest, tagged(10_000), 3)[1] >= 10_000 / (STEP_WORK + 1)
    numbers = b"\0\1g" + struct.pack(">ihi", 1, 0, 80_000) + bytes(4 * 80_000)
    assert steps_of(OffsetFetchRequest, numbers, 5)[1] >= 80_000 / 8 / (STEP_WORK + 512)
    long_names = struct.pack(">i", 100) + (struct.pack(">h", 30_000) + b"a" * 30_000) * 100
    assert steps_of(MetadataRequest, long_names, 1)[1] >= 40
    envelope = twin.encode(EnvelopeRequest(request_data=bytes(4 << 20)), 0)
    assert steps_of(EnvelopeRequest, envelope, 0)[1] >= 32
    field = b"\x02a\x02b\x01\x05" + encode_uvarint(4 << 20) + bytes(4 << 20)
    assert steps_of(ApiVersionsRequest, field, 3)[1] >= 32


def test_large_message_equals_the_twins() -> None:
    data = names(WHOLE_BYTES)
    assert decode(MetadataRequest, data, 1) == twin.decode(MetadataRequest, data, 1)


def test_decode_at_once_reads_large_frames_of_few_elements_only() -> None:
    """A megabyte of records is one element; `WORK_AT_ONCE` bounds the elements of all lists."""
    partition = ProduceRequest.PartitionProduceData(records=bytes(1 << 20))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(topic_data=[topic])
    view = memoryview(twin.encode(request, 9))
    assert decode_at_once(ProduceRequest, view, 9, 0) == (request, len(view))
    assert decode_at_once(MetadataRequest, memoryview(names(WORK_AT_ONCE)), 1, 0) is not None
    assert decode_at_once(MetadataRequest, memoryview(names(WORK_AT_ONCE + 1)), 1, 0) is None
    with pytest.raises(ProtocolError):
        decode_at_once(ProduceRequest, view[:-1], 9, 0)


def test_decode_at_once_counts_all_kinds_of_work() -> None:
    """Numbers, tagged fields, text and bytes take time, and so do elements of many short lists."""
    too_long: list[tuple[type[Message], bytes, int]] = []
    numbers = b"\0\1g" + struct.pack(">ihi", 1, 0, 8 * WORK_AT_ONCE) + bytes(32 * WORK_AT_ONCE)
    too_long.append((OffsetFetchRequest, numbers, 5))
    too_long.append((ApiVersionsRequest, tagged(4 * WORK_AT_ONCE + 4), 3))
    long_names = struct.pack(">i", 20) + (struct.pack(">h", 30_000) + b"a" * 30_000) * 20
    too_long.append((MetadataRequest, long_names, 1))
    envelope = EnvelopeRequest(request_data=bytes((WORK_AT_ONCE + 1) << 11))
    too_long.append((EnvelopeRequest, twin.encode(envelope, 0), 0))
    field = b"\x02a\x02b\x01\x05" + encode_uvarint(4 << 20) + bytes(4 << 20)
    too_long.append((ApiVersionsRequest, field, 3))
    topic = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData()]
    )
    produce = ProduceRequest(topic_data=[topic] * (WORK_AT_ONCE // 2 + 1))
    too_long.append((ProduceRequest, twin.encode(produce, 9), 9))
    produce = ProduceRequest(unknown_tags={1_000: bytes((WORK_AT_ONCE + 1) << 11)})
    too_long.append((ProduceRequest, twin.encode(produce, 9), 9))
    for cls, data, version in too_long:
        assert decode_at_once(cls, memoryview(data), version, 0) is None, (cls, version)
        assert decode(cls, data, version) == twin.decode(cls, data, version)


def test_memory_of_work_at_once_is_what_every_message_may_take() -> None:
    """`decode_at_once` counts no memory: no list of any request makes more than `FREE_BYTES`."""
    for api in set(ApiKey) - REMOVED_APIS:
        cls = request_class(api)
        for version in range(cls.VERSIONS.first, cls.VERSIONS.last + 1):
            for element in elements_of(plan_message(cls, version)):
                size = SLOT_BYTES + element.object_bytes()
                assert size * WORK_AT_ONCE <= FREE_BYTES, (cls, version, element.name)


def elements_of(plan: Plan) -> Iterator[PlannedField]:
    """The elements of all lists below a struct."""
    for field in plan.plain + plan.tagged:
        if field.kind.element is not None:
            yield field.element()
        if field.struct is not None:
            yield from elements_of(field.struct)


# --- messages in fields


def test_field_of_many_elements_is_refused() -> None:
    """A field is decoded at once: a subscription of 8 MB would block the event loop for seconds."""
    fits = names(FIELD_WORK_MAX // 2)
    assert decode_field(MetadataRequest, fits, 1) == decode(MetadataRequest, fits, 1)
    with pytest.raises(ProtocolError, match="more than are decoded at once"):
        decode_field(MetadataRequest, names(2 * FIELD_WORK_MAX), 1)


def test_record_of_many_elements_is_read() -> None:
    """A node that cannot read a committed record stops (`docs/fatal-tasks.md`). Therefore it must
    read every record that a request can write."""
    features = [
        RegisterControllerRecord.ControllerFeature(name=f"f{n}", max_supported_version=1)
        for n in range(2 * FIELD_WORK_MAX)
    ]
    record = RegisterControllerRecord(features=features)
    framed = encode_framed(record, 0)
    assert decode_framed(framed, lambda _: RegisterControllerRecord) == (record, 0)


# --- the reason of a refusal


def test_twin_explains_a_bounded_prefix() -> None:
    """The twin read 3 MiB with a wrong last length for ten seconds, on the event loop."""
    near = names(EXPLAINED_FIELDS // 2 - 10, b"\0\x7fa")
    with pytest.raises(ProtocolError, match=r"bytes for MetadataRequest v1\.topics\[89\]\.name"):
        decode(MetadataRequest, near, 1)
    far = names(EXPLAINED_FIELDS, b"\0\x7fa")
    with pytest.raises(ProtocolError, match="behind the first 200 fields"):
        decode(MetadataRequest, far, 1)
    with pytest.raises(ProtocolError, match="behind the first 200 fields"):
        decode(MetadataRequest, names(100_000, b"\0\x7fa"), 1)


@pytest.mark.parametrize(
    "message",
    [
        EnvelopeRequest(request_data=bytes(3_000_000)),
        EnvelopeRequest(unknown_tags={9: bytes(3_000_000)}),
    ],
    ids=["field", "tagged field"],
)
def test_twin_copies_nothing_to_explain(message: EnvelopeRequest) -> None:
    data = twin.encode(message, 0)
    if message.unknown_tags:
        data = data.replace(b"\x01\x09", b"\x02\x09", 1)
    view = memoryview(data if message.unknown_tags else data[:-1])
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        twin.explain(EnvelopeRequest, view, 0, 0, EXPLAINED_FIELDS)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000


# --- freeing


ELECT = (
    b"\0"
    + struct.pack(">i", 100)
    + (b"\0\1t" + struct.pack(">i", 100) + bytes(400)) * 100
    + bytes(4)
)


def freed(made: list[Any]) -> int:
    """Free the message that only `made` refers to; returns the number of steps."""
    return sum(1 for _ in free_in_steps(made.pop()))


def test_free_in_steps_frees_a_bounded_number_at_a_time() -> None:
    """A million objects that are freed at once hold the event loop."""
    assert freed([steps_of(MetadataRequest, names(10_000), 1)[0]]) >= 10_000 / FREED_AT_ONCE
    assert freed([steps_of(ElectLeadersRequest, ELECT, 1)[0]]) >= 10_000 / FREED_AT_ONCE


def test_free_in_steps_leaves_what_others_hold() -> None:
    """A handler may keep a request, a list or an element."""
    made = [steps_of(ElectLeadersRequest, ELECT, 1)[0]]
    element = made[0].topic_partitions[50]
    partitions = made[0].topic_partitions[60].partitions
    freed(made)
    assert len(element.partitions) == 100 == len(partitions)
    made = [steps_of(ElectLeadersRequest, ELECT, 1)[0]]
    topics = made[0].topic_partitions
    freed(made)
    assert [len(one.partitions) for one in topics] == [100] * 100
    kept = steps_of(ElectLeadersRequest, ELECT, 1)[0]
    freed([kept])
    assert [len(one.partitions) for one in kept.topic_partitions] == [100] * 100
