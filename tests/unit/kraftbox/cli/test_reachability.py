"""Checks of bootstrap addresses, against servers in this process that speak other protocols."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from client.addresses import Address
from kraftbox.cli import reachability
from kraftbox.cli.reachability import (
    API_VERSIONS,
    CLOSED,
    CORRELATION_ID,
    HTTP,
    SILENT,
    TLS,
    Unreachable,
    answering_first,
    client_hello,
    named,
    obstacle_at,
    refusal,
)
from protocol.api_keys import ApiKey
from protocol.messages.api_versions import ApiVersionsRequest

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ANSWER = struct.pack(">iihi", 10, CORRELATION_ID, 0, 0)


async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.read(64)
    if head == API_VERSIONS:
        writer.write(ANSWER)
        await reader.read()


async def metrics(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer whole lines only, as most HTTP servers do."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 404 Not Found\r\n\r\n")
    await reader.read()


async def encrypted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.read(5)
    if head[:2] == b"\x16\x03":
        writer.write(b"\x16\x03\x03\x00\x7a\x02\x00" + b"\0" * 9)
        await reader.read()


async def closing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Return, which ends the connection."""


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@asynccontextmanager
async def serving(serve: Serve, port: int = 0) -> AsyncIterator[Address]:
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def unused() -> Address:
    """Return an address at which nothing listens."""
    async with serving(silent) as address:
        pass
    return address


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "SILENCE_MS", 100)
    monkeypatch.setattr(reachability, "ANSWER_MS_MAX", 400)
    monkeypatch.setattr(reachability, "RETRY_MS", 10)


def quiet(line: str) -> None:
    pytest.fail(line)


def test_request_is_api_versions_in_version_0() -> None:
    size, key, version, _ = struct.unpack_from(">ihhi", API_VERSIONS)
    assert (size, key, version) == (len(API_VERSIONS) - 4, ApiKey.API_VERSIONS, 0)
    assert ApiVersionsRequest.VERSIONS.first == 0


@pytest.mark.parametrize(
    ("serve", "expected"),
    [(broker, None), (metrics, HTTP), (encrypted, TLS), (closing, CLOSED), (silent, SILENT)],
)
async def test_address_is_named_by_its_protocol(serve: Serve, expected: object) -> None:
    async with serving(serve) as address:
        assert await obstacle_at(address) == expected


async def test_refused_connection_is_named_without_a_clock() -> None:
    """First hours, fault 6: the reason was "3 ms passed"."""
    address = await unused()
    with pytest.raises(Unreachable) as failed:
        await answering_first([address], 0, quiet)
    assert str(failed.value) == f"127.0.0.1:{address[1]}: Connection refused"


async def test_broker_that_answers_comes_first() -> None:
    dead = await unused()
    async with serving(silent) as paused, serving(broker) as alive:
        found = await answering_first([dead, paused, alive], 0, quiet)
    assert found == [alive, dead, paused]


async def test_wait_continues_until_the_broker_listens() -> None:
    address = await unused()
    check = asyncio.ensure_future(answering_first([address], 30_000, quiet))
    await asyncio.sleep(0)
    async with serving(broker, address[1]):
        assert await check == [address]


async def test_wait_ends_at_an_address_with_another_protocol() -> None:
    """Waiting does not turn the metrics port into a broker."""
    async with serving(metrics) as address:
        with pytest.raises(Unreachable, match="is it the metrics port"):
            await answering_first([address], 30_000_000, quiet)


async def test_long_check_names_the_address_that_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reachability, "NOTICE_MS", 50)
    lines: list[str] = []
    dead = await unused()
    async with serving(silent) as address:
        with pytest.raises(Unreachable):
            await answering_first([dead, address], 0, lines.append)
    assert lines == [
        f"waiting for 127.0.0.1:{address[1]} (127.0.0.1:{dead[1]}: Connection refused)"
    ]


def test_client_hello_is_a_handshake_record() -> None:
    assert client_hello()[:2] == b"\x16\x03"


def test_answers_name_their_protocol() -> None:
    assert named(b"SSH-2.0-").reason == "answers SSH, not Kafka"  # type: ignore[union-attr]
    assert named(b"\x15\x03\x01\x00\x02") is TLS
    assert named(b"") is named(ANSWER[:8]) is None


async def test_unknown_host_is_named() -> None:
    found = await obstacle_at(("no-such-host.invalid", 9092))
    assert found is not None and found.reason.startswith("unknown host: ")


def test_refusal_of_several_addresses_has_one_reason() -> None:
    error = OSError(
        "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
        "[Errno 111] Connect call failed ('127.0.0.1', 1)"
    )
    assert refusal(error).reason == "Connection refused"
