"""Headers before every request and response.

| header | fields | used |
|---|---|---|
| request v0 | api key, api version, correlation id | ControlledShutdown v0 alone (removed in 4.0) |
| request v1 | + client id, nullable, int16 length | versions that are not flexible |
| request v2 | + tagged fields; the client id keeps its int16 length | flexible versions |
| response v0 | correlation id | versions that are not flexible; ApiVersions always |
| response v1 | + tagged fields | flexible versions |

An ApiVersions response has header v0 in every version, because the client does not know yet what
the broker supports (KIP-511). A request header can be decoded for any version of a known API,
supported or not: the response to an unsupported version needs the correlation id.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from protocol.api_keys import ApiKey
from protocol.errors import EncodeError, ProtocolError
from protocol.schema import Buffer
from protocol.varint import decode_uvarint

NEVER: Final = 0x7FFF
MAX_CLIENT_ID_BYTES: Final = 0x7FFF
HEADER_TAGS_MAX: Final = 10_000
"""The limit of any section. A header is read without a pause; 10,000 fields take 4 ms."""

# The first flexible version of each API, unless it is 0. A test compares this table with the
# message classes; to read it from them would import all of them.
FIRST_FLEXIBLE_VERSION: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.SASL_HANDSHAKE: NEVER,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.CREATE_DELEGATION_TOKEN: 2,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.OFFSET_DELETE: NEVER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
    # Removed in Kafka 4.0; their headers can still be decoded.
    ApiKey.LEADER_AND_ISR: 4,
    ApiKey.STOP_REPLICA: 2,
    ApiKey.UPDATE_METADATA: 6,
    ApiKey.CONTROLLED_SHUTDOWN: 3,
}

_API_KEYS: Final[dict[int, ApiKey]] = {int(key): key for key in ApiKey}
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)

_REQUEST_FIXED = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AND_TAGS = struct.Struct(">ib")


class RequestHeader(NamedTuple):
    """Header of a request. The sender chooses the correlation id; it may be any int32."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether this version of an API uses compact lengths and tagged fields."""
    return api_version >= FIRST_FLEXIBLE_VERSION.get(api_key, 0)


def request_header_version(api_key: int, api_version: int) -> int:
    """Return the version of the request header: 0, 1 or 2."""
    if is_flexible(api_key, api_version):
        return 2
    return 0 if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Return the version of the response header: 0 or 1."""
    return 1 if api_key != _API_VERSIONS and is_flexible(api_key, api_version) else 0


def decode_request_header(buf: Buffer) -> tuple[RequestHeader, int]:
    """Decode the header at the start of a request; its version may be one that is not supported.

    Returns:
        The header and the offset of the body.

    Raises:
        ProtocolError: the API key is unknown, the version is negative, or the bytes are malformed.
    """
    try:
        key, version, correlation_id = _REQUEST_FIXED.unpack_from(buf)
    except struct.error:
        raise ProtocolError("bytes of a request header", len(buf), "at least 8") from None
    api_key = _API_KEYS.get(key)
    if api_key is None:
        raise ProtocolError("api key", key, f"0-{max(_API_KEYS)}")
    if version < 0:
        raise ProtocolError(f"version of {api_key.name}", version, "0 or more")
    if request_header_version(key, version) == 0:
        return RequestHeader(api_key, version, correlation_id, None), _REQUEST_FIXED.size
    client_id, pos = decode_client_id(buf, is_flexible(key, version))
    return RequestHeader(api_key, version, correlation_id, client_id), pos


def decode_client_id(buf: Buffer, flexible: bool) -> tuple[str | None, int]:
    """Decode the rest of a request header of version 1, or 2 if `flexible`.

    The caller has read the fixed-size part.

    Returns:
        The client id and the offset of the body.

    Raises:
        ProtocolError: the bytes are malformed.
    """
    try:
        length: int = _LENGTH.unpack_from(buf, 8)[0]
    except struct.error:
        raise ProtocolError("bytes for length of client id", len(buf) - 8, "2") from None
    start = end = 10
    client_id: str | None = None
    if length != -1:
        end += length
        if not start <= end <= len(buf):
            raise ProtocolError("length of client id", length, f"-1-{len(buf) - start}")
        client_id = str(buf[start:end], "utf-8", "replace")  # Kafka replaces too
    return client_id, _skip_tags(buf, end) if flexible else end


def encode_request_header(header: RequestHeader) -> bytes:
    """Encode a header in the version for its API and API version.

    Raises:
        EncodeError: the client id is longer than 32,767 bytes.
    """
    key, version = header.api_key, header.api_version
    out = _REQUEST_FIXED.pack(key, version, header.correlation_id)
    header_version = request_header_version(key, version)
    if header_version == 0:
        return out
    if header.client_id is None:
        out += _LENGTH.pack(-1)
    else:
        client_id = header.client_id.encode()
        if len(client_id) > MAX_CLIENT_ID_BYTES:
            raise EncodeError("bytes of a client id", len(client_id), f"0-{MAX_CLIENT_ID_BYTES}")
        out += _LENGTH.pack(len(client_id)) + client_id
    return out + b"\0" if header_version == 2 else out


def response_header_bytes(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the header before a response to this version of an API."""
    if response_header_version(api_key, api_version) == 0:
        return _CORRELATION_ID.pack(correlation_id)
    return _CORRELATION_ID_AND_TAGS.pack(correlation_id, 0)


def decode_response_header(buf: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """Decode a response's header.

    Args:
        api_key: the API key of the request.
        api_version: the version of the request.

    Returns:
        The correlation id and the offset of the body.

    Raises:
        ProtocolError: the bytes are malformed.
    """
    try:
        correlation_id: int = _CORRELATION_ID.unpack_from(buf)[0]
    except struct.error:
        raise ProtocolError("bytes of a response header", len(buf), "at least 4") from None
    pos = _CORRELATION_ID.size
    if response_header_version(api_key, api_version) == 1:
        pos = _skip_tags(buf, pos)
    return correlation_id, pos


def _skip_tags(buf: Buffer, pos: int) -> int:
    """Skip the tagged fields of a header; none are defined."""
    if pos < len(buf) and buf[pos] == 0:
        return pos + 1
    count, pos = decode_uvarint(buf, pos, "header tag count")
    if count > HEADER_TAGS_MAX:
        raise ProtocolError("tagged fields of a header", count, f"0-{HEADER_TAGS_MAX}")
    last = -1
    for _ in range(count):
        tag, pos = decode_uvarint(buf, pos, "header tag")
        if tag <= last:
            raise ProtocolError("header tag", tag, f"more than {last}")
        last = tag
        size = buf[pos] if pos < len(buf) else 0x80
        if size < 0x80:
            pos += 1
        else:
            size, pos = decode_uvarint(buf, pos, "size of a header tag")
        if size > len(buf) - pos:
            raise ProtocolError(f"size of header tag {tag}", size, f"0-{len(buf) - pos}")
        pos += size
    return pos
