"""Writes of a connection: replies of one event-loop iteration are joined, in order, and none is
lost."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from protocol.api_keys import ApiKey
from protocol.messages.metadata import MetadataResponse
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import HandlerTable, Reply
from protocol.transport.exchange import REPLIES_TOGETHER_BYTES
from protocol.transport.server import Server
from runtime.clock import ManualClock
from testkit.memory.sockets import Echo, heartbeat, metadata


class Transport:
    """A transport that records its calls."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(bytes(data))

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def close(self) -> None:
        self.closed = True

    abort = close


def connected(table: HandlerTable) -> tuple[ServerConnection, Transport]:
    connection = ServerConnection(Server(table, clock=ManualClock(), listener="PLAINTEXT"), 1)
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def connected_waiting() -> tuple[ServerConnection, Transport, list[asyncio.Future[Any]]]:
    """Return a connection, and the replies to its Metadata requests as they come."""
    waiting: list[asyncio.Future[Any]] = []

    def handle(context: Any, request: Any) -> Reply:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    table = HandlerTable()
    table.register(ApiKey.METADATA, handle)
    return *connected(table), waiting


def receive(connection: ServerConnection, data: bytes) -> None:
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def correlation_ids(data: bytes) -> list[int]:
    found = []
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        found.append(correlation_id)
        data = data[4 + size :]
    return found


async def test_replies_to_requests_that_came_together_are_one_write() -> None:
    connection, transport = connected(Echo().table())
    receive(connection, b"".join(metadata(number) for number in range(5)))
    assert [correlation_ids(data) for data in transport.writes] == [[0, 1, 2, 3, 4]]


async def test_large_replies_are_not_collected() -> None:
    table = HandlerTable()
    answer = MetadataResponse(cluster_id="x" * (REPLIES_TOGETHER_BYTES // 2 + 1))
    table.register(ApiKey.METADATA, lambda context, request: answer)
    connection, transport = connected(table)
    receive(connection, b"".join(metadata(number) for number in range(5)))
    assert [correlation_ids(data) for data in transport.writes] == [[0, 1], [2, 3], [4]]


async def test_a_reply_is_written_before_the_next_request_closes_the_connection() -> None:
    connection, transport = connected(Echo().table())
    receive(connection, metadata(1) + struct.pack(">i", -1))
    assert [correlation_ids(data) for data in transport.writes] == [[1]]
    assert transport.closed


async def test_replies_that_are_let_go_together_are_one_write() -> None:
    connection, transport, waiting = connected_waiting()
    receive(connection, b"".join(metadata(number) for number in range(4)))
    for future in (waiting[1], waiting[0], waiting[2]):
        future.set_result(MetadataResponse())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [correlation_ids(data) for data in transport.writes] == [[0, 1, 2]]
    waiting[3].set_result(MetadataResponse())
    await asyncio.sleep(0)
    assert [correlation_ids(data) for data in transport.writes] == [[0, 1, 2], [3]]


async def test_nothing_is_written_after_the_end() -> None:
    connection, transport, waiting = connected_waiting()
    receive(connection, metadata(0) + metadata(1))
    waiting[0].set_result(MetadataResponse())
    await asyncio.sleep(0)
    connection.abort()
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert transport.writes == []


async def test_behind_callback_runs_when_a_later_reply_is_ready() -> None:
    echo = Echo()
    connection, _ = connected(echo.table())
    heard: list[str] = []

    def hears() -> None:
        heard.append("behind")

    receive(connection, metadata(1))
    connection.add_behind_callback(hears)
    receive(connection, heartbeat("first", 2))
    assert heard == []  # no request was waiting behind another
    receive(connection, metadata(3))
    assert heard == ["behind"]
    receive(connection, heartbeat("last", 4))
    echo.release("last")
    await asyncio.sleep(0)
    assert heard == ["behind", "behind"]
    connection.remove_behind_callback(hears)
    receive(connection, metadata(5))
    echo.release("first")
    await asyncio.sleep(0)
    assert len(heard) == 2
    connection.connection_lost(None)
    connection.add_behind_callback(hears)
    assert not connection._behind_callbacks
