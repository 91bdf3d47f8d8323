"""Headers of requests and responses."""

from __future__ import annotations

import pytest

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import EncodeError, ProtocolError
from protocol.header_schemas import RequestHeader as RequestHeaderSchema
from protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    is_flexible,
    request_header_version,
    response_header_bytes,
    response_header_version,
)
from protocol.messages import REMOVED_APIS, request_class, response_class

LIVE = [key for key in ApiKey if key not in REMOVED_APIS]


@pytest.mark.parametrize("key", LIVE)
def test_table_of_flexible_versions(key: ApiKey) -> None:
    request, response = request_class(key), response_class(key)
    for version in request.VERSIONS.each():
        assert is_flexible(key, version) == (version in request.FLEXIBLE)
        assert is_flexible(key, version) == (version in response.FLEXIBLE)


@pytest.mark.parametrize("key", LIVE)
@pytest.mark.parametrize("client_id", [None, "", "client-1", "\u00e9" * 200])
def test_request_header_equals_schema(key: ApiKey, client_id: str | None) -> None:
    for version in request_class(key).VERSIONS.each():
        header = RequestHeader(key, version, -7, client_id)
        data = encode_request_header(header)
        schema = RequestHeaderSchema(
            request_api_key=key,
            request_api_version=version,
            correlation_id=-7,
            client_id=client_id,
        )
        assert data == encode(schema, request_header_version(key, version))
        for buffer in (data, bytearray(data + b"body"), memoryview(data)):
            assert decode_request_header(buffer) == (header, len(data))


def test_truncated_request_header() -> None:
    data = encode_request_header(RequestHeader(ApiKey.FETCH, 17, 5, "client"))
    for cut in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_request_header(data[:cut])


def test_versions_we_do_not_know_still_have_a_header() -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 99, 5, "new client")
    assert decode_request_header(encode_request_header(header))[0] == header


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    header = RequestHeader(ApiKey.CONTROLLED_SHUTDOWN, 0, 5, None)
    data = encode_request_header(header)
    assert len(data) == 8
    assert decode_request_header(data + b"body") == (header, 8)
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 1) == 1
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 3) == 2


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\xff\xff\0\0\0\0\0\0\xff\xff", "api key"),
        (b"\x27\x0f\0\0\0\0\0\0\xff\xff", "api key"),
        (b"\0\x01\xff\xff\0\0\0\0\xff\xff", "version of FETCH"),
        (b"\0\x01\0\x04\0\0\0\0\xff\xfe", "length of client id"),
        (b"\0\x01\0\x0c\0\0\0\0\xff\xff\x02\x01\x00\x01\x00", "header tag"),
        (b"\0\x01\0\x0c\0\0\0\0\xff\xff\x01\x01\x09", "size of header tag 1"),
        (b"\0\x01\0\x0c\0\0\0\0\xff\xff\x80\x80\x80\x80\x80\x01", "header tag count"),
    ],
)
def test_broken_request_headers(data: bytes, what: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_request_header(data)
    assert caught.value.what == what


def test_tags_in_a_header_are_passed_over() -> None:
    data = b"\0\x01\0\x0c\0\0\0\x09\0\x01c\x02\x01\x01x\x03\x00"
    header = RequestHeader(ApiKey.FETCH, 12, 9, "c")
    assert decode_request_header(data + b"body") == (header, len(data))


def test_client_id_that_is_not_utf8() -> None:
    header, _ = decode_request_header(b"\0\x01\0\x04\0\0\0\0\0\x02a\xff")
    assert header.client_id == "a\ufffd"


def test_client_id_has_a_longest_length() -> None:
    with pytest.raises(EncodeError):
        encode_request_header(RequestHeader(ApiKey.FETCH, 4, 0, "x" * 0x8000))


@pytest.mark.parametrize("key", LIVE)
def test_response_headers(key: ApiKey) -> None:
    for version in request_class(key).VERSIONS.each():
        data = response_header_bytes(key, version, -3)
        expected = 4 + (version in request_class(key).FLEXIBLE and key != ApiKey.API_VERSIONS)
        assert len(data) == expected == 4 + response_header_version(key, version)
        assert decode_response_header(data + b"body", key, version) == (-3, len(data))
        for cut in range(len(data)):
            with pytest.raises(ProtocolError):
                decode_response_header(data[:cut], key, version)


def test_api_versions_answers_with_header_v0_in_every_version() -> None:
    for version in (0, 3, 4, 99):
        assert response_header_bytes(ApiKey.API_VERSIONS, version, 1) == b"\0\0\0\x01"
