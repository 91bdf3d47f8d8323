"""Produce requests recognised by the bytes before their records, with the result of decoding
them."""

from __future__ import annotations

import struct

from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.headers import RequestHeader, decode_client_id, encode_request_header
from protocol.messages.produce import ProduceRequest
from protocol.transport.dispatch import HandlerTable
from protocol.transport.repeated import RepeatedProduce, learn

VERSIONS = range(3, 14)


def entry():
    table = HandlerTable()
    table.register(ApiKey.PRODUCE, lambda context, request: None)
    return table.entries[ApiKey.PRODUCE]


ENTRY = entry()


def frame(
    version, records, *, client="producer-1", topic="topic", index=3, correlation_id=1, acks=-1
):
    topic_data = ProduceRequest.TopicProduceData(
        name=topic if version < 13 else "",
        topic_id=bytes(16) if version < 13 else topic.encode().ljust(16, b".")[:16],
        partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)],
    )
    request = ProduceRequest(acks=acks, timeout_ms=1500, topic_data=[topic_data])
    header = RequestHeader(ApiKey.PRODUCE, version, correlation_id, client)
    return encode_request_header(header) + encode(request, version)


def read(version, data):
    """Return (client id, message) as the connection decodes them. Raises: ProtocolError."""
    view = memoryview(data)
    client, at = decode_client_id(view, version >= ENTRY.first_flexible)
    message, end = decode(ProduceRequest, view, version, at)
    return client, message, end


def learned(version, data) -> RepeatedProduce | None:
    client, message, _ = read(version, data)
    return learn(ENTRY, version, client, message, memoryview(data))


@given(
    st.sampled_from(VERSIONS),
    st.lists(st.binary(max_size=300) | st.integers(0, 70_000).map(bytes), min_size=2, max_size=4),
    st.none() | st.text(max_size=20),
)
@settings(max_examples=200, deadline=None)
def test_other_records_are_taken_whatever_their_size(version, contents, client):
    known = learned(version, frame(version, contents[0], client=client))
    assert known is not None
    for number, records in enumerate(contents):
        data = frame(version, records, client=client, correlation_id=number - 2**31)
        assert known.take(memoryview(data))
        _, message, end = read(version, data)
        assert end == len(data)
        assert known.message == message
        assert known.client_id == client


@given(
    st.sampled_from(VERSIONS),
    st.binary(max_size=200),
    st.binary(max_size=200),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.integers(-4, 4),
)
@example(9, b"", b"", [(-1, 1)], 0)
@settings(max_examples=600, deadline=None)
def test_repeated_request_is_taken_only_if_the_decoder_reads_the_same(
    version, first, second, damage, cut
):
    known = learned(version, frame(version, first))
    assert known is not None
    data = bytearray(frame(version, second))
    for at, value in damage:
        data[8 + at % (len(data) - 8)] = value
    data = data[: len(data) + cut] if cut < 0 else data + bytes(cut)
    if not known.take(memoryview(data)):
        return
    client, message, end = read(version, data)
    assert (client, end) == (known.client_id, len(data))
    assert known.message == message


@given(st.sampled_from(VERSIONS), st.integers(0, 3))
@settings(deadline=None)
def test_another_topic_partition_client_or_acks_is_not_taken(version, which):
    other = [{"topic": "other"}, {"index": 4}, {"client": "producer-2"}, {"acks": 1}][which]
    known = learned(version, frame(version, b"records"))
    assert known is not None
    assert not known.take(memoryview(frame(version, b"records", **other)))


def test_only_one_batch_with_records_is_learned():
    assert learned(9, frame(9, None)) is None
    two = ProduceRequest(
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=n, records=b"r") for n in range(2)
                ],
            )
        ]
    )
    for request in (two, ProduceRequest()):
        data = encode_request_header(RequestHeader(ApiKey.PRODUCE, 9, 1, "c")) + encode(request, 9)
        assert learned(9, data) is None


def test_lengths_with_needless_bytes_and_tags_are_left_to_the_decoder():
    plain = frame(9, b"r" * 5)
    assert plain[-9] == 6
    long = plain[:-9] + b"\x86\x00" + plain[-8:]
    assert read(9, long)[2] == len(long)
    assert learned(9, long) is None
    tagged = plain[:-1] + b"\x01\x07\x01x"
    assert read(9, tagged)[2] == len(tagged)
    assert learned(9, tagged) is None
    known = learned(9, plain)
    assert known is not None
    assert not known.take(memoryview(tagged))
    assert not known.take(memoryview(plain[:-1]))
    huge = plain[:-9] + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff" + plain[-8:]
    assert not known.take(memoryview(huge))
    try:
        read(9, huge)
    except ProtocolError:
        pass
    else:
        raise AssertionError("the decoder reads a length of nine bytes")


def test_the_buffer_is_let_go():
    known = learned(9, frame(9, b"records"))
    assert known is not None
    buffer = bytearray(frame(9, b"others"))
    assert known.take(memoryview(buffer))
    known.let_go()
    buffer += struct.pack(">i", 1)  # would raise BufferError while a view is held
