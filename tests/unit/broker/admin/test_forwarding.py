"""Forwarding to the controller: replies to clients when no controller can be reached."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from broker.admin.envelopes import _address, _principal
from broker.admin.forwarding import Forwarder, _timeout_ms, register
from broker.controller_link.channel import ChannelPool, ControllerChannel, ControllerUnavailable
from protocol.api_keys import FORWARDABLE, ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import decode_request_header
from protocol.internal.default_principal_data import DefaultPrincipalData
from protocol.messages import request_class, response_class
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.update_features import UpdateFeaturesRequest
from protocol.transport.dispatch import HandlerTable
from protocol.transport.own_names import Own
from serving.controller_apis import CONTROLLER_APIS, OWN_APIS, forwarded_apis
from serving.error_answers import error_response
from testkit.memory.broker import Harness, Peer, topic_id

CODE = ErrorCode.REQUEST_TIMED_OUT


def filled(api: ApiKey) -> Any:
    requests: dict[ApiKey, Any] = {
        ApiKey.CREATE_TOPICS: CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="a")]
        ),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="a")]
        ),
        ApiKey.ALTER_CONFIGS: AlterConfigsRequest(
            resources=[AlterConfigsRequest.AlterConfigsResource(resource_name="a")]
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsRequest.AlterConfigsResource(resource_name="a")]
        ),
        ApiKey.ELECT_LEADERS: ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="a", partitions=[0, 1])]
        ),
        ApiKey.DELETE_TOPICS: DeleteTopicsRequest(topic_names=["a"]),
        ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest(
            entries=[AlterClientQuotasRequest.EntryData()]
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest(
            deletions=[AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="a")]
        ),
    }
    return requests.get(api) or request_class(api)()


ANSWERED_HERE = (ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
FORWARDED = [api for api in forwarded_apis() if api not in ANSWERED_HERE]


@pytest.mark.parametrize("api", FORWARDED)
def test_forwarded_api_has_error_response_in_every_version(api: ApiKey) -> None:
    for version in request_class(api).VERSIONS.each():
        data = encode(error_response(filled(api), CODE, version), version)
        response, _ = decode(response_class(api), data, version)
        assert f"error_code={int(CODE)}" in repr(response)


def test_api_with_own_handler_is_not_forwarded() -> None:
    table, forwarder = HandlerTable(), Mock()
    own = Mock()
    for api in (*ANSWERED_HERE, ApiKey.ALTER_CONFIGS):
        table.register(api, own)
    register(table, forwarder)
    assert set(table.entries) == set(forwarded_apis())
    forwarded = {api for api, entry in table.entries.items() if entry.handler is forwarder.handle}
    assert forwarded == set(FORWARDED) - {ApiKey.ALTER_CONFIGS}


def test_our_own_apis_are_there_for_our_own_tools_alone() -> None:
    table = HandlerTable()
    register(table, Mock())

    def told(own: Own) -> set[int]:
        return {one.api_key for one in table.api_versions_response(4, own=own).api_keys}

    assert told(Own.TOOL) - told(Own.NOBODY) == OWN_APIS
    assert told(Own.BROKER) == told(Own.NOBODY)


def test_controller_only_api_is_not_forwarded() -> None:
    assert ApiKey.ALLOCATE_PRODUCER_IDS in FORWARDABLE & CONTROLLER_APIS
    assert ApiKey.ALLOCATE_PRODUCER_IDS not in forwarded_apis()


def test_topics_named_by_id_are_answered_by_id() -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id(3))]
    )
    response: Any = error_response(request, CODE, 6)
    assert [(r.name, r.topic_id, r.error_code) for r in response.responses] == [
        (None, topic_id(3), CODE)
    ]


def test_the_principal_travels_as_kafka_writes_it() -> None:
    data = _principal("User:ANONYMOUS")
    assert data[:2] == b"\0\0"
    principal, _ = decode(DefaultPrincipalData, data[2:], 0)
    assert (principal.type, principal.name) == ("User", "ANONYMOUS")


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        ("127.0.0.1", b"\x7f\0\0\x01"),
        ("::1", bytes(15) + b"\x01"),
        ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\x01"),
        ("simulated", bytes(4)),
    ],
)
def test_the_clients_address_travels_in_bytes(host: str, packed: bytes) -> None:
    assert _address(host) == packed


def test_the_timeout_follows_the_requests_own_timeout_within_ours() -> None:
    assert _timeout_ms(CreateTopicsRequest(timeout_ms=5000)) == 6000
    assert _timeout_ms(CreateTopicsRequest(timeout_ms=10**6)) == 30_000
    assert _timeout_ms(AlterConfigsRequest()) == 30_000
    assert _timeout_ms(ElectLeadersRequest(timeout_ms=10**5)) == 101_000
    assert _timeout_ms(ElectLeadersRequest(timeout_ms=2**31 - 1)) == 3_600_000
    assert _timeout_ms(UpdateFeaturesRequest(timeout_ms=0)) == 30_000


async def test_an_election_that_is_sent_again_has_the_time_that_is_left() -> None:
    """KIP-966: an election that the client has stopped waiting for is not run later by any
    controller."""
    h = Harness()
    sent: list[int] = []

    class Moves:
        """A channel whose controller moves twice; each move takes 2 s."""

        async def request(self, envelope: EnvelopeRequest, timeout_ms: float) -> EnvelopeResponse:
            header, offset = decode_request_header(envelope.request_data)
            request, _ = decode(
                ElectLeadersRequest, envelope.request_data, header.api_version, offset
            )
            sent.append(request.timeout_ms)
            if len(sent) < 3:
                h.clock.advance(2000)
                raise ControllerUnavailable("moved")
            return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

        async def pause(self, pause_ms: float) -> None:
            return

    moves = cast(ControllerChannel, Moves())
    forwarder = Forwarder(replace(h.context, elections=ChannelPool(lambda: moves)))
    context = h.request_context(ApiKey.ELECT_LEADERS, 3)
    request = ElectLeadersRequest(election_type=3, timeout_ms=60_000)
    await forwarder.handle(context, request)
    assert sent == [60_000, 58_000, 56_000]
    assert request.timeout_ms == 60_000


class Waits:
    """A channel whose controller answers nothing until the test allows it; five requests at a
    time."""

    def __init__(self, made: list[Waits]) -> None:
        made.append(self)
        self.places = asyncio.Semaphore(5)
        self.closed = False
        self.answers = asyncio.Event()

    async def request(self, envelope: EnvelopeRequest, timeout_ms: float) -> EnvelopeResponse:
        async with self.places:
            await self.answers.wait()
        return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    async def close(self) -> None:
        self.closed = True


async def test_nothing_waits_behind_elections() -> None:
    h = Harness()
    made: list[Waits] = []
    peers: list[Peer] = []
    pool = ChannelPool(lambda: cast(ControllerChannel, Waits(made)))
    forwarder = Forwarder(replace(h.context, elections=pool))

    def elect() -> asyncio.Task[Any]:
        context = h.request_context(ApiKey.ELECT_LEADERS, 3)
        peers.append(Peer())
        context = replace(context, connection=peers[-1])
        request = ElectLeadersRequest(election_type=3, timeout_ms=60_000)
        return asyncio.ensure_future(forwarder.handle(context, request))

    waiting = [elect() for _ in range(20)]
    await asyncio.sleep(0)
    last = elect()
    await asyncio.sleep(0)
    assert len(made) == 21
    made[-1].answers.set()
    await last
    assert not made[-1].closed
    # The next request reuses its channel; a request that times out closes its own.
    again = elect()
    await again
    assert len(made) == 21
    peers[0].close("gone")
    await asyncio.wait(waiting[:1])
    assert [channel.closed for channel in made] == [True] + [False] * 20
    for channel in made:
        channel.answers.set()
    await asyncio.gather(*waiting[1:])
    assert [channel.closed for channel in made].count(False) == 1
    await pool.close()
    assert all(channel.closed for channel in made)


async def test_a_request_whose_envelope_no_controller_takes_is_refused_unsent() -> None:
    """The controller would close the connection, and the broker would retry for half a minute."""
    h = Harness(socket_request_max_bytes="100000")
    topic = CreateTopicsRequest.CreatableTopic(
        name="t",
        configs=[CreateTopicsRequest.CreatableTopicConfig(name="a", value="v" * 30_000)] * 4,
    )
    body = await h.call(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7)
    response, _ = decode(response_class(ApiKey.CREATE_TOPICS), b"".join(body.parts), 7)
    assert [one.error_code for one in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert not h.controller.requests
