"""The handler table: advertised and served versions, and each kind of reply."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from protocol.api_keys import ApiKey
from protocol.batch import Record, build_batch, read_records
from protocol.codec import encode, encode_parts
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.fetch import FetchRequest
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.schema import ApiMessage
from protocol.transport.dispatch import (
    CloseConnection,
    EncodedReply,
    Features,
    Handler,
    HandlerTable,
    RequestContext,
    own_peers,
)
from protocol.transport.embedded import answer_embedded
from protocol.transport.node_identity import NodeIdentity
from protocol.transport.own_names import (
    BROKER_SOFTWARE_NAME,
    CONTROLLER_SOFTWARE_NAME,
    TOOL_SOFTWARE_NAME,
    Own,
)
from protocol.transport.server import Server
from runtime.clock import SystemClock
from runtime.errors import InvariantViolated
from runtime.log import captured
from runtime.tasks import Supervisor
from testkit.memory.sockets import (
    Echo,
    correlation_id_of,
    heartbeat,
    metadata,
    on_both_loops,
    raw_client,
    read_response,
    request_bytes,
    serving,
)
from testkit.memory.turns import until


def ranges(table: HandlerTable, version: int = 4) -> dict[int, tuple[int, int]]:
    answer = table.api_versions_response(version)
    return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}


def nothing(_: RequestContext, __: Any) -> None:
    return None


def table_of(handler: Handler, api: ApiKey = ApiKey.HEARTBEAT) -> HandlerTable:
    table = HandlerTable()
    table.register(api, handler)
    table.register(ApiKey.METADATA, Echo().metadata)
    return table


# --- ranges ------------------------------------------------------------------------------------


def test_ranges_come_from_the_handlers() -> None:
    table = HandlerTable()
    assert ranges(table) == {}
    table.register(ApiKey.FETCH, nothing, min_version=5, max_version=99)
    table.register(ApiKey.PRODUCE, nothing, min_version=3, advertise_from=0)
    table.register(ApiKey.METADATA, nothing, max_version=4)
    assert ranges(table) == {
        0: (0, ProduceRequest.VERSIONS.last),
        1: (5, FetchRequest.UNSTABLE.first - 1),
        3: (0, 4),
    }
    assert table.find(ApiKey.PRODUCE, 3) is table.entries[ApiKey.PRODUCE]
    for api, version in ((0, 2), (1, 4), (3, 5), (3, -1), (18, 0)):
        with pytest.raises(CloseConnection):
            table.find(api, version)


def test_unstable_versions_are_hidden() -> None:
    for unstable, expected in ((False, 5), (True, 6)):
        table = HandlerTable(unstable=unstable)
        table.register(ApiKey.INIT_PRODUCER_ID, nothing)
        table.register(ApiKey.HEARTBEAT, nothing, unstable=True)
        assert ranges(table)[22] == (0, expected)
        assert (12 in table.entries) is unstable


def table_with_own_versions(handler: Handler) -> HandlerTable:
    """Return a table with Heartbeat 0-3 for all, and 4 for our brokers on the listener of
    `serving`."""
    table = HandlerTable(own_kind=own_peers("PLAINTEXT"))
    table.register(ApiKey.HEARTBEAT, handler, max_version=3, own_max_version=4)
    table.serve_api_versions()
    return table


def test_own_versions_may_be_unstable_and_end_where_the_message_does() -> None:
    table = HandlerTable()
    table.register(ApiKey.INIT_PRODUCER_ID, nothing, own_max_version=6)
    assert ranges(table)[22] == (0, 5)
    for own in (2, HeartbeatRequest.VERSIONS.last + 1):
        with pytest.raises(ValueError, match="own version"):
            table.register(ApiKey.HEARTBEAT, nothing, max_version=3, own_max_version=own)


def test_own_peers_need_a_known_name_and_nodes_a_node_listener() -> None:
    peer = NoConnection()
    for name, own in (
        ("apache-kafka-java", Own.NOBODY),
        (TOOL_SOFTWARE_NAME, Own.TOOL),
        (BROKER_SOFTWARE_NAME, Own.BROKER),
        (CONTROLLER_SOFTWARE_NAME, Own.CONTROLLER),
    ):
        peer.software_name = name
        assert own_peers("CONTROLLER")(peer) is own
        assert own_peers()(peer) is own
        elsewhere = own if own is Own.TOOL else Own.NOBODY
        assert own_peers("PLAINTEXT")(peer) is elsewhere
        assert HandlerTable().own_kind(peer) is Own.NOBODY


def test_an_api_may_be_there_for_our_own_only() -> None:
    table = HandlerTable(own_kind=own_peers())
    table.register(ApiKey.HEARTBEAT, nothing, own=Own.CONTROLLER, own_only=True)
    table.register(ApiKey.METADATA, nothing, max_version=9, own_max_version=10, own=Own.TOOL)
    peer = NoConnection()
    for name, sees_heartbeat, last_metadata in (
        ("apache-kafka-java", False, 9),
        (TOOL_SOFTWARE_NAME, False, 10),
        (BROKER_SOFTWARE_NAME, False, 9),
        (CONTROLLER_SOFTWARE_NAME, True, 9),
    ):
        peer.software_name = name
        answer = table.api_versions_response(4, own=table.own_kind(peer))
        found = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        assert (ApiKey.HEARTBEAT in found) is sees_heartbeat
        assert found[ApiKey.METADATA] == (0, last_metadata)
        if sees_heartbeat:
            last = HeartbeatRequest.VERSIONS.last
            assert found[ApiKey.HEARTBEAT] == (0, last)
            assert table.find(ApiKey.HEARTBEAT, last, peer) is table.entries[ApiKey.HEARTBEAT]
        else:
            with pytest.raises(CloseConnection, match="API 12 version 4 is not served here"):
                table.find(ApiKey.HEARTBEAT, 4, peer)
        if last_metadata == 10:
            assert table.find(ApiKey.METADATA, 10, peer) is not None
        else:
            with pytest.raises(CloseConnection, match="version 10 is not in 0-9"):
                table.find(ApiKey.METADATA, 10, peer)
    with pytest.raises(CloseConnection):
        table.find(ApiKey.HEARTBEAT, 4)


@on_both_loops
@pytest.mark.parametrize(
    ("name", "offered"), [(BROKER_SOFTWARE_NAME, 4), ("apache-kafka-java", 3), ("kraftbox", 3)]
)
async def test_own_versions_exist_for_our_brokers_only(name: str, offered: int) -> None:
    said = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    async with serving(table_with_own_versions(done)) as server, raw_client(server) as client:
        client.writer.write(request_bytes(said, 4))
        _, answer = read_response(await client.response(), ApiKey.API_VERSIONS, 4)
        found = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        assert found[ApiKey.HEARTBEAT] == (0, offered)
        for version in (3, 4):
            client.writer.write(request_bytes(HeartbeatRequest(group_id="g"), version))
            if version > offered:
                assert await client.closed() == b""
            else:
                await client.response()


async def test_requests_inside_requests_of_our_brokers_keep_their_right() -> None:
    """The forwarding broker has checked its client; any other sender has not."""
    table = table_with_own_versions(done)
    request = embedded(HeartbeatRequest(group_id="abc"), 4)
    for connection in (NoConnection(), OwnConnection()):
        base = replace(BASE, connection=connection)
        if table.own_kind(connection) is Own.BROKER:
            assert await answer_embedded(table, request, base=base) is not None
        else:
            with pytest.raises(CloseConnection, match="version 4 is not in 0-3"):
                await answer_embedded(table, request, base=base)


def test_wrong_registrations() -> None:
    table = table_of(nothing)
    with pytest.raises(ValueError, match="already"):
        table.register(ApiKey.HEARTBEAT, nothing)
    with pytest.raises(ValueError, match="no version"):
        table.register(ApiKey.FETCH, nothing, min_version=99)
    with pytest.raises(LookupError):
        table.register(ApiKey.LEADER_AND_ISR, nothing)


def test_features_with_minimum_zero_are_for_version_4() -> None:
    features = Features(
        supported=[("kraft.version", 0, 1), ("metadata.version", 7, 29)],
        finalized=[("metadata.version", 29, 29)],
        finalized_epoch=12,
    )
    table = HandlerTable()
    for version, names in ((3, ["metadata.version"]), (4, ["kraft.version", "metadata.version"])):
        answer = table.api_versions_response(version, features)
        assert [one.name for one in answer.supported_features] == names
        assert [one.name for one in answer.finalized_features] == ["metadata.version"]
        assert answer.finalized_features[0].max_version_level == 29
        assert answer.finalized_features_epoch == 12
        encode(answer, version)


@on_both_loops
async def test_api_versions_reads_the_features_for_each_response() -> None:
    table = HandlerTable()
    epochs = iter((1, 2))
    table.serve_api_versions(lambda: Features(finalized_epoch=next(epochs)))
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    async with serving(table) as server, raw_client(server) as client:
        for epoch in (1, 2):
            client.writer.write(request_bytes(request, 4))
            _, answer = read_response(await client.response(), ApiKey.API_VERSIONS, 4)
            assert answer.finalized_features_epoch == epoch


@on_both_loops
@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("x", ""), ("-x", "1"), ("x", "1-"), ("a b", "1"), ("x\n", "1")],
)
async def test_bad_client_software(name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    async with serving(Echo().table()) as server, raw_client(server) as client:
        client.writer.write(request_bytes(request, 4, 9))
        correlation_id, answer = read_response(await client.response(), ApiKey.API_VERSIONS, 4)
        assert (correlation_id, answer.error_code) == (9, ErrorCode.INVALID_REQUEST)
        assert answer.api_keys == []
        client.writer.write(request_bytes(request, 2, 10))
        _, answer = read_response(await client.response(), ApiKey.API_VERSIONS, 2)
        assert answer.error_code == 0


@on_both_loops
@pytest.mark.parametrize(
    ("cluster_id", "node_id", "of_broker", "of_controller"),
    [
        (None, -1, ErrorCode.NONE, ErrorCode.NONE),
        ("mine", 7, ErrorCode.NONE, ErrorCode.NONE),
        ("mine", -1, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        (None, 7, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        (None, -2, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        ("", -1, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        ("", 7, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("other", 7, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("x" * 32_767, 7, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("mine", 8, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("mine", -2, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("mine", 2_147_483_647, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
    ],
)
async def test_api_versions_5_for_another_node_requests_a_rebootstrap(
    cluster_id: str | None, node_id: int, of_broker: ErrorCode, of_controller: ErrorCode
) -> None:
    """KIP-1242, with the codes of Kafka 4.4: a refusal lists no API; controllers do not compare."""
    request = ApiVersionsRequest(
        client_software_name="x",
        client_software_version="1",
        cluster_id=cluster_id,
        node_id=node_id,
    )
    for identity, expected in ((NodeIdentity("mine", 7), of_broker), (None, of_controller)):
        table = HandlerTable()
        table.serve_api_versions(identity=identity)
        async with serving(table) as server, raw_client(server) as client:
            client.writer.write(request_bytes(request, 5))
            _, answer = read_response(await client.response(), ApiKey.API_VERSIONS, 5)
            assert answer.error_code == expected
            assert [one.api_key for one in answer.api_keys] == ([] if expected else [18])


# --- kinds of reply ----------------------------------------------------------------------------


async def asynchronous(_: RequestContext, request: HeartbeatRequest) -> ApiMessage:
    await asyncio.sleep(0)
    return HeartbeatResponse(throttle_time_ms=len(request.group_id))


def encoded(context: RequestContext, request: HeartbeatRequest) -> EncodedReply:
    message = HeartbeatResponse(throttle_time_ms=len(request.group_id))
    return EncodedReply(encode_parts(message, context.api_version))


def done(_: RequestContext, request: HeartbeatRequest) -> asyncio.Future[ApiMessage]:
    future: asyncio.Future[ApiMessage] = asyncio.get_running_loop().create_future()
    future.set_result(HeartbeatResponse(throttle_time_ms=len(request.group_id)))
    return future


class AsyncObject:
    async def __call__(self, context: RequestContext, request: HeartbeatRequest) -> ApiMessage:
        return await asynchronous(context, request)


@on_both_loops
@pytest.mark.parametrize("handler", [asynchronous, encoded, done, AsyncObject()])
async def test_reply_kinds(handler: Handler) -> None:
    async with serving(table_of(handler)) as server, raw_client(server) as client:
        for n in range(3):
            client.writer.write(heartbeat("x" * n, n))
        for n in range(3):
            answer = read_response(await client.response(), ApiKey.HEARTBEAT, 4)
            assert answer == (n, HeartbeatResponse(throttle_time_ms=n))


@on_both_loops
async def test_no_reply() -> None:
    async with serving(table_of(nothing)) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 1) + metadata(2) + heartbeat("b", 3) + metadata(4))
        assert correlation_id_of(await client.response()) == 2
        assert correlation_id_of(await client.response()) == 4


@on_both_loops
async def test_no_reply_from_a_future() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 1) + metadata(2))
        await echo.until(lambda: len(echo.asked) == 2)
        echo.waiting["a"].set_result(None)
        assert correlation_id_of(await client.response()) == 2


@on_both_loops
async def test_coroutine_handlers_get_a_frame_of_their_own() -> None:
    go = asyncio.Event()
    kept: list[bytes] = []
    begun: list[ProduceRequest] = []

    async def produce(_: RequestContext, request: ProduceRequest) -> None:
        begun.append(request)
        await go.wait()
        for topic in request.topic_data:
            for partition in topic.partition_data:
                kept.extend(record.value or b"" for record in read_records(partition.records))

    table = table_of(produce, ApiKey.PRODUCE)
    async with serving(table) as server, raw_client(server) as client:
        for value in (b"one", b"two"):
            batch = build_batch([Record(value=value * 1000)])
            client.writer.write(request_bytes(produce_request(batch), 9))
        client.writer.write(metadata(1))
        await until(lambda: len(begun) == 2)
        go.set()
        assert correlation_id_of(await client.response()) == 1
    assert kept == [b"one" * 1000, b"two" * 1000]


def produce_request(batch: bytes) -> ProduceRequest:
    return ProduceRequest(
        acks=0,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)],
            )
        ],
    )


# --- failures ----------------------------------------------------------------------------------


def raising(error: Exception, *, later: bool) -> Handler:
    def now(_: RequestContext, __: Any) -> None:
        raise error

    async def then(_: RequestContext, __: Any) -> None:
        await asyncio.sleep(0)
        raise error

    return then if later else now


@on_both_loops
@pytest.mark.parametrize("later", [False, True])
async def test_api_error_is_answered(later: bool) -> None:
    handler = raising(ApiError(ErrorCode.UNKNOWN_MEMBER_ID), later=later)
    async with serving(table_of(handler)) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 5) + metadata(6))
        correlation_id, answer = read_response(await client.response(), ApiKey.HEARTBEAT, 4)
        assert (correlation_id, answer.error_code) == (5, ErrorCode.UNKNOWN_MEMBER_ID)
        assert correlation_id_of(await client.response()) == 6
        stats = server.handlers.entries[ApiKey.HEARTBEAT].stats
        assert stats.errors == {ErrorCode.UNKNOWN_MEMBER_ID: 1}


@on_both_loops
async def test_api_error_where_the_response_has_no_place_for_it() -> None:
    handler = raising(ApiError(ErrorCode.INVALID_REQUEST), later=False)
    table = HandlerTable()
    table.register(ApiKey.FETCH, handler)
    async with serving(table) as server:
        async with raw_client(server) as client:
            client.writer.write(request_bytes(FetchRequest(), 7, 3))
            _, answer = read_response(await client.response(), ApiKey.FETCH, 7)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        async with raw_client(server) as client:
            client.writer.write(request_bytes(FetchRequest(), 6, 3))
            assert await client.closed() == b""


@on_both_loops
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("error", [CloseConnection("no"), ProtocolError("broken")])
async def test_handler_error_for_a_close_ends_the_connection(error: Exception, later: bool) -> None:
    handler = raising(error, later=later)
    async with serving(table_of(handler)) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 5) + metadata(6))
        assert await client.closed() == b""


@on_both_loops
@pytest.mark.parametrize("later", [False, True])
async def test_a_bug_in_a_handler_is_logged_and_answered(later: bool) -> None:
    handler = raising(KeyError("oops"), later=later)
    with captured() as lines:
        async with serving(table_of(handler)) as server, raw_client(server) as client:
            client.writer.write(heartbeat("a", 5) + metadata(6))
            _, answer = read_response(await client.response(), ApiKey.HEARTBEAT, 4)
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert correlation_id_of(await client.response()) == 6
    assert [
        line["api"] for line in lines if line["event"] == "Work on bytes from outside failed"
    ] == ["HEARTBEAT"]


@on_both_loops
@pytest.mark.parametrize("later", [False, True])
async def test_a_broken_invariant_stops_the_node(later: bool) -> None:
    fatal: list[BaseException] = []
    supervisor = Supervisor(on_fatal=lambda _, error: fatal.append(error))
    broken = InvariantViolated("epoch went back")
    server = Server(
        table_of(raising(broken, later=later)),
        clock=SystemClock(),
        listener="X",
        supervisor=supervisor,
    )
    await server.start("127.0.0.1", 0)
    async with raw_client(server) as client:
        client.writer.write(heartbeat("a", 5))
        await client.response()
    assert fatal == [broken]
    await server.close()


@on_both_loops
async def test_a_reply_that_cannot_be_encoded_closes() -> None:
    def handler(_: RequestContext, __: Any) -> ApiMessage:
        return HeartbeatResponse(throttle_time_ms=2**40)

    async with serving(table_of(handler)) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 5) + metadata(6))
        assert await client.closed() == b""


@on_both_loops
async def test_a_cancelled_reply_closes() -> None:
    echo = Echo()
    async with serving(echo.table()) as server, raw_client(server) as client:
        client.writer.write(heartbeat("a", 1))
        await echo.until(lambda: bool(echo.waiting))
        echo.waiting["a"].cancel()
        assert await client.closed() == b""


# --- requests inside requests --------------------------------------------------------------------


class NoConnection:
    id = 1
    listener = "CONTROLLER"
    peer_host = "h"
    peer_port = 1
    client_id: str | None = None
    software_name = ""
    closed_by_peer = False
    software_version = ""
    asked_epochs_ms = 0.0

    def add_close_callback(self, fn: object) -> None: ...
    def remove_close_callback(self, fn: object) -> None: ...
    def add_behind_callback(self, fn: object) -> None: ...
    def remove_behind_callback(self, fn: object) -> None: ...
    def close(self, reason: str) -> None: ...
    def keep(self, size_bytes: int, until: object) -> None: ...


class OwnConnection(NoConnection):
    listener = "PLAINTEXT"
    software_name = BROKER_SOFTWARE_NAME


BASE = RequestContext(
    NoConnection(), ApiKey.ENVELOPE, 0, 1, "broker", 5.0, "User:alice", "10.0.0.9", "CONTROLLER"
)


def embedded(message: ApiMessage, version: int, client_id: str | None = "c") -> bytes:
    header = RequestHeader(ApiKey(message.API_KEY), version, 44, client_id)
    return encode_request_header(header) + encode(message, version)


@pytest.mark.parametrize("handler", [asynchronous, encoded, done])
async def test_answer_of_an_embedded_request(handler: Handler) -> None:
    frame = embedded(HeartbeatRequest(group_id="abc"), 4)
    parts = await answer_embedded(table_of(handler), frame, base=BASE)
    assert parts is not None
    answer = read_response(b"".join(parts), ApiKey.HEARTBEAT, 4)
    assert answer == (44, HeartbeatResponse(throttle_time_ms=3))


async def test_embedded_context_is_that_of_the_first_sender() -> None:
    echo = Echo()
    await answer_embedded(echo.table(), embedded(MetadataRequest(topics=[]), 12, None), base=BASE)
    context = echo.contexts[0]
    assert (context.principal, context.client_host) == ("User:alice", "10.0.0.9")
    assert (context.api_key, context.correlation_id, context.client_id) == (3, 44, None)


async def test_embedded_failures() -> None:
    table = table_of(raising(ApiError(ErrorCode.NOT_CONTROLLER), later=True))
    parts = await answer_embedded(table, embedded(HeartbeatRequest(), 3), base=BASE)
    assert parts is not None
    _, answer = read_response(b"".join(parts), ApiKey.HEARTBEAT, 3)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert (
        await answer_embedded(table_of(nothing), embedded(HeartbeatRequest(), 3), base=BASE) is None
    )
    for frame in (b"", b"\x00\x0c\x00", embedded(HeartbeatRequest(), 3)[:-1]):
        with pytest.raises(ProtocolError):
            await answer_embedded(table, frame, base=BASE)
    with pytest.raises(CloseConnection):
        await answer_embedded(table, embedded(FetchRequest(), 4), base=BASE)


async def test_embedded_unknown_api_versions() -> None:
    table = Echo().table()
    parts = await answer_embedded(table, b"\x00\x12\x00\x63\x00\x00\x00\x09\xff\xff\x00", base=BASE)
    assert parts is not None
    correlation_id, answer = read_response(b"".join(parts), ApiKey.API_VERSIONS, 0)
    assert correlation_id == 9
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
