"""Private API keys and versions: only a peer that lists a private key receives them."""

from __future__ import annotations

import asyncio
import struct

import pytest

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ApiError, ErrorCode
from protocol.headers import response_header_bytes
from protocol.messages import REMOVED_APIS, request_class
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.explain_election import ExplainElectionRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.get_replica_log_info import GetReplicaLogInfoRequest
from protocol.private_numbers import (
    PRIVATE_ERROR_CODES,
    PRIVATE_KEYS,
    PRIVATE_MIN,
    PRIVATE_VERSIONS,
)
from protocol.schema import Request
from protocol.transport.client import Connection
from protocol.transport.dispatch import PEEK

FOREIGN_KEY = 93
"""StreamsGroupTopologyDescriptionUpdate in Kafka 4.4.0; GetReplicaLogInfo in an older Kraftbox."""
OFFERED = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.FETCH: (4, 19),
    ApiKey.ALTER_PARTITION: (2, 4),
    ApiKey.ELECT_LEADERS: (0, 3),
    FOREIGN_KEY: (0, 0),
}
"""A later Kafka release that uses our private version numbers for something else."""
VERSIONED: dict[type[Request], int] = {  # type: ignore[type-arg]
    FetchRequest: 19,
    AlterPartitionRequest: 4,
    ElectLeadersRequest: 3,
}


class FakePeer:
    """A peer that offers given versions and records the API key and version of each request."""

    def __init__(self, *more_keys: int) -> None:
        self.asked: list[tuple[int, int]] = []
        self._versions = {**OFFERED, **dict.fromkeys(more_keys, (0, 0))}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, version, correlation_id = PEEK.unpack_from(await reader.readexactly(size))
                self.asked.append((key, version))
                body = self._answer(key)
                header = response_header_bytes(key, version, correlation_id)
                frame = header + bytes(encode(body, version))
                writer.write(struct.pack(">i", len(frame)) + frame)
        except asyncio.IncompleteReadError:
            writer.close()

    def _answer(self, key: int) -> ApiVersionsResponse | ElectLeadersResponse | FetchResponse:
        if key == ApiKey.ELECT_LEADERS:
            return ElectLeadersResponse()
        if key == ApiKey.FETCH:
            return FetchResponse()
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self._versions.items()
            ]
        )


async def connected(peer: FakePeer) -> tuple[asyncio.Server, Connection]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    return server, await Connection.connect(host, port)


async def test_peer_without_private_key_receives_no_private_number() -> None:
    """Kafka may assign our private numbers: 4.4.0 did so with key 93 (KIP-1331)."""
    peer = FakePeer()
    server, connection = await connected(peer)
    for request, private in VERSIONED.items():
        assert connection.version_for(request) == private - 1
        assert not connection.offers(request, private)
        with pytest.raises(ApiError) as refused:
            await connection.request(request(), 1000, private)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    for message in (GetReplicaLogInfoRequest(), ExplainElectionRequest()):
        with pytest.raises(ApiError) as refused:
            await connection.request(message, 1000)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    await connection.request(ElectLeadersRequest())
    await connection.request(FetchRequest())
    await connection.close()
    server.close()
    first = (ApiKey.API_VERSIONS, ApiVersionsRequest.VERSIONS.last)
    assert peer.asked == [first, (ApiKey.ELECT_LEADERS, 2), (ApiKey.FETCH, 18)]


@pytest.mark.parametrize("key", sorted(PRIVATE_KEYS))
async def test_peer_with_private_key_receives_private_versions(key: ApiKey) -> None:
    """A node of ours lists a private key, so the same version numbers have our meaning."""
    peer = FakePeer(key)
    server, connection = await connected(peer)
    for request, private in VERSIONED.items():
        assert connection.offers(request, private)
        assert connection.version_for(request, private) == private
    assert (connection.version_for(ElectLeadersRequest), connection.version_for(FetchRequest)) == (
        3,
        18,
    )
    await connection.close()
    server.close()


async def test_connection_without_negotiation_uses_no_private_version() -> None:
    """Without an ApiVersions response there is no proof that the peer is a node of ours."""
    peer = FakePeer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    connection = await Connection.connect(host, port, negotiate=False)
    assert connection.version_for(ElectLeadersRequest) == 2
    await connection.close()
    server.close()


def test_private_numbers_table_agrees_with_keys_codes_and_messages() -> None:
    """Every private key, version and error code is in the table, so one test guards them all."""
    assert {key for key in ApiKey if key >= PRIVATE_MIN} == PRIVATE_KEYS
    assert {code for code in ErrorCode if code >= PRIVATE_MIN} == PRIVATE_ERROR_CODES
    assert {ApiKey(request.API_KEY): version for request, version in VERSIONED.items()} == (
        PRIVATE_VERSIONS
    )
    kafkas_own_unstable = {ApiKey.INIT_PRODUCER_ID}
    unstable = {
        key
        for key in ApiKey
        if key not in REMOVED_APIS and key < PRIVATE_MIN and request_class(key).UNSTABLE
    }
    assert unstable == {*PRIVATE_VERSIONS, *kafkas_own_unstable}
    for key, version in PRIVATE_VERSIONS.items():
        assert request_class(key).VERSIONS.last == version
        assert (version, version) == request_class(key).UNSTABLE
