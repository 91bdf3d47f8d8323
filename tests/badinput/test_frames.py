"""Frames and headers: B1 to B16 and B47 of the catalogue, sent to a whole node."""

from __future__ import annotations

import socket
import struct

import pytest

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.varint import encode_uvarint
from testkit.processes.peer import Peer, Target

METADATA = 3
API_VERSIONS = 18
INVALID_REQUEST = 42
UNSUPPORTED_VERSION = 35


def header(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    """Return a header of version 1 without client id."""
    return struct.pack(">hhih", api_key, version, correlation_id, -1)


def assert_closed(target: Target, frame: bytes) -> None:
    """Assert that the node closes without an answer, and continues to serve others."""
    with target.connect() as peer:
        peer.send_frame(frame)
        assert peer.is_closed()
    with target.connect() as peer:
        peer.works()


@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_b01_negative_frame_length(target: Target, size: int) -> None:
    with target.connect() as peer:
        peer.send(struct.pack(">i", size))
        assert peer.is_closed()


@pytest.mark.parametrize("size", [104_857_601, 2**31 - 1])
def test_b02_frame_over_the_limit(target: Target, size: int) -> None:
    with target.connect() as peer:
        peer.send(struct.pack(">i", size))
        assert peer.is_closed()


@pytest.mark.parametrize("size", [0, 1, 3, 7])
def test_b03_frame_too_short_for_a_header(target: Target, size: int) -> None:
    assert_closed(target, header(METADATA, 1)[:size])


def test_b05_half_a_frame_then_fin(target: Target) -> None:
    with target.connect() as peer:
        peer.send(struct.pack(">i", 100) + header(METADATA, 1))
        peer.socket.shutdown(socket.SHUT_WR)
        assert peer.is_closed()


def test_b05_half_a_frame_then_reset(target: Target) -> None:
    peer = target.connect()
    peer.send(struct.pack(">i", 100) + header(METADATA, 1))
    peer.reset()
    with target.connect() as other:
        other.works()


def test_b05_one_byte_at_a_time(target: Target) -> None:
    frame = header(METADATA, 1, 7) + struct.pack(">i", 0)
    with target.connect() as peer:
        for byte in struct.pack(">i", len(frame)) + frame:
            peer.send(bytes((byte,)))
        assert peer.answer(ApiKey.METADATA, 1)[0] == 7


def test_b05_fifty_frames_in_one_segment(target: Target) -> None:
    with target.connect() as peer:
        frames = b""
        for n in range(50):
            frame = header(METADATA, 1, n) + struct.pack(">i", 0)
            frames += struct.pack(">i", len(frame)) + frame
        peer.send(frames)
        assert [peer.answer(ApiKey.METADATA, 1)[0] for _ in range(50)] == list(range(50))


@pytest.mark.parametrize(
    "hello",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    ],
)
def test_b06_other_protocols(target: Target, hello: bytes) -> None:
    with target.connect() as peer:
        peer.send(hello)
        assert peer.is_closed()


@pytest.mark.parametrize("api_key", [-1, 999, 32767])
def test_b07_unknown_api(target: Target, api_key: int) -> None:
    assert_closed(target, header(api_key, 0) + bytes(20))


@pytest.mark.parametrize(
    "api",
    [
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
    ],
)
def test_b07_api_of_another_listener(target: Target, api: ApiKey) -> None:
    with target.connect() as peer:
        served = {key.api_key for key in peer.ask(ApiVersionsRequest(), 0).api_keys}
        assert api not in served
    assert_closed(target, header(api, 0) + bytes(100))


@pytest.mark.parametrize("version", [-1, 99, 32767])
@pytest.mark.parametrize("api_key", [METADATA, 0, 1])
def test_b08_version_that_does_not_exist(target: Target, api_key: int, version: int) -> None:
    assert_closed(target, header(api_key, version) + bytes(50))


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_b08_version_of_api_versions_that_does_not_exist(target: Target, version: int) -> None:
    with target.connect() as peer:
        peer.send_frame(header(API_VERSIONS, version, 77) + b"\x00anything")
        correlation_id, answer = peer.answer(ApiKey.API_VERSIONS, 0)
        assert correlation_id == 77
        assert answer.error_code == UNSUPPORTED_VERSION
        (own,) = [key for key in answer.api_keys if key.api_key == API_VERSIONS]
        assert (own.min_version, own.max_version) == (0, 5)
        peer.works()


def test_b09_unknown_tags_are_skipped(target: Target) -> None:
    tags = b"\x02" + b"\x05\x03abc" + b"\xb0\x7f\x00"
    body = b"\x01" + b"\x00\x00" + b"\x01\x64\x04tags"
    with target.connect() as peer:
        peer.send_frame(header(METADATA, 12, 9) + tags + body)
        correlation_id, answer = peer.answer(ApiKey.METADATA, 12)
        assert (correlation_id, answer.topics) == (9, [])


def test_b09_header_of_the_wrong_version(target: Target) -> None:
    # A flexible request without the tags of its header: the body's first byte counts them.
    body = b"\x02" + b"\x01\x7f" + bytes(14) + b"\x04abc\x00" + b"\x00\x00\x00"
    assert_closed(target, header(METADATA, 12) + body)


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1.0"), ("a", ""), ("-a", "1"), ("a-", "1"), ("a b", "1"), ("a", "1_0"), ("ä", "1")],
)
def test_b10_bad_client_software(target: Target, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    with target.connect() as peer:
        assert peer.ask(request, 3).error_code == INVALID_REQUEST
        peer.works()


@pytest.mark.parametrize("count", [1, 2, 1000, 2**31 - 1])
def test_b11_array_longer_than_the_request(target: Target, count: int) -> None:
    assert_closed(target, header(METADATA, 1) + struct.pack(">i", count))


@pytest.mark.parametrize("count", [2, 1000, 2**31 - 1, 2**32 - 1])
def test_b11_compact_array_longer_than_the_request(target: Target, count: int) -> None:
    varint = b""
    while count > 0x7F:
        varint += bytes((count & 0x7F | 0x80,))
        count >>= 7
    varint += bytes((count,))
    assert_closed(target, header(METADATA, 12) + b"\x00" + varint)


def test_b12_null_where_none_may_be(target: Target) -> None:
    assert_closed(target, header(METADATA, 0) + struct.pack(">i", -1))
    assert_closed(target, header(ApiKey.FIND_COORDINATOR, 0) + struct.pack(">h", -1))


@pytest.mark.parametrize("length", [-2, -32768, 5, 32767])
def test_b12_impossible_string_length(target: Target, length: int) -> None:
    body = struct.pack(">h", length) + b"abc"
    assert_closed(target, header(ApiKey.FIND_COORDINATOR, 0) + body)


@pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\xff\x01", b"\xff" * 12])
def test_b13_varint_too_long(target: Target, varint: bytes) -> None:
    assert_closed(target, header(METADATA, 12) + b"\x00" + varint + bytes(20))


def test_b13_compact_null_where_none_may_be(target: Target) -> None:
    # Heartbeat 4: the group id.
    assert_closed(target, header(ApiKey.HEARTBEAT, 4) + b"\x00" + b"\x00" + bytes(20))


@pytest.mark.parametrize("tags", [b"\x02\x05\x00\x04\x00", b"\x02\x05\x00\x05\x00"])
def test_b13_tags_out_of_order_or_twice(target: Target, tags: bytes) -> None:
    with target.connect() as peer:
        peer.send_frame(header(METADATA, 12, 3) + tags + b"\x01\x00\x00\x00")
        if target.is_kafka:
            # Kafka accepts any tags; no client sends them, and we follow KIP-482.
            assert peer.answer(ApiKey.METADATA, 12)[0] == 3
        else:
            assert peer.is_closed()


def test_b14_bytes_after_the_body(target: Target) -> None:
    with target.connect() as peer:
        peer.send_frame(header(METADATA, 1, 4) + struct.pack(">i", 0) + b"more of them")
        assert peer.answer(ApiKey.METADATA, 1)[0] == 4
        peer.works()


@pytest.mark.parametrize("client_id", [None, "", "c" * 32_767, "a\x00b\n\x1b[31mc", "\u2028"])
def test_b15_strange_client_id(target: Target, client_id: str | None) -> None:
    with target.connect() as peer:
        peer.ask(MetadataRequest(topics=[]), 12, client_id=client_id)
        peer.ask(FindCoordinatorRequest(key="a\x00b\n\x1b[31mc"), 3, client_id=client_id)


def test_b15_client_id_that_is_no_utf_8(target: Target) -> None:
    with target.connect() as peer:
        peer.ask_raw(METADATA, 1, struct.pack(">i", 0), client_id=b"\x00\x02\xff\xfe")
        peer.answer(ApiKey.METADATA, 1)


@pytest.mark.parametrize("correlation_id", [-1, 0, -(2**31), 2**31 - 1])
def test_b16_correlation_ids_are_echoed(target: Target, correlation_id: int) -> None:
    with target.connect() as peer:
        for _ in range(2):
            frame = RequestHeader(ApiKey.METADATA, 12, correlation_id, "x")
            body = encode(MetadataRequest(topics=[]), 12)
            peer.send_frame(encode_request_header(frame) + body)
            assert peer.answer(ApiKey.METADATA, 12)[0] == correlation_id


@pytest.mark.parametrize(
    "api",
    [
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.ALTER_PARTITION,
    ],
)
def test_b47_forged_requests_of_nodes(target: Target, api: ApiKey) -> None:
    with target.connect() as peer:
        served = {key.api_key for key in peer.ask(ApiVersionsRequest(), 0).api_keys}
        assert api not in served
        for version in (0, 1):
            with Peer(target.address) as forger:
                forger.send_frame(header(api, version) + bytes(100))
                assert forger.is_closed()
        peer.works()


# --- frames of many elements ---------------------------------------------------------------------


def large_frame(name: str) -> bytes:
    """A frame that would take long to decode, or much memory."""
    names = struct.pack(">i", 100_000) + b"\0\1a" * 99_999
    return {
        "tagged fields": header(API_VERSIONS, 3)
        + b"\0\x02a\x02b"
        + encode_uvarint(10_001)
        + b"".join(encode_uvarint(tag) + b"\0" for tag in range(10_001)),
        "tagged fields of a header": header(API_VERSIONS, 3)
        + encode_uvarint(10_001)
        + b"".join(encode_uvarint(tag) + b"\0" for tag in range(10_001))
        + b"\x02a\x02b\0",
        "elements": header(METADATA, 0) + struct.pack(">i", 1_000_001) + bytes(2 * 1_000_001),
        "objects": header(METADATA, 1) + struct.pack(">i", 1_000_000) + b"\0\1a" * 1_000_000,
        "wrong end": header(METADATA, 1) + names + b"\0\x7fa",
    }[name]


@pytest.mark.parametrize(
    "name",
    ["tagged fields", "tagged fields of a header", "elements", "objects", "wrong end"],
)
def test_b02_frame_beyond_the_limits_closes(target: Target, name: str) -> None:
    """B2: lists of 1,000,000 elements, sections of 10,000 tagged fields, four times the memory."""
    if target.is_kafka and name == "objects":
        pytest.skip("Kafka has no such limit (docs/gaps.md)")
    with target.connect() as peer:
        peer.works()
        peer.send_frame(large_frame(name))
        assert peer.is_closed()
    with target.connect() as peer:
        peer.works()


def test_b02_first_frame_above_512_kib_closes(target: Target) -> None:
    if target.is_kafka:
        pytest.skip("Kafka has no such limit (docs/gaps.md)")
    with target.connect() as peer:
        peer.send(struct.pack(">i", 512 * 1024 + 1))
        assert peer.is_closed()


def test_b02_large_request_within_the_limits_is_served(target: Target) -> None:
    """100,000 names, with requests before and behind them."""
    with target.connect() as peer:
        peer.works()
        request = MetadataRequest(
            topics=[
                MetadataRequest.MetadataRequestTopic(name=f"missing-{number}")
                for number in range(100_000)
            ],
            allow_auto_topic_creation=False,
        )
        peer.ask_later(request, 9)
        peer.ask_later(MetadataRequest(topics=[]), 9)
        assert len(peer.answer(ApiKey.METADATA, 9)[1].topics) == 100_000
        assert peer.answer(ApiKey.METADATA, 9)[1].topics == []
