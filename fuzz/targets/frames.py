"""Bytes of one client into a server's connection, without a socket.

Every API that has a message class gets a handler that responds at once, later or in a task, so
every request decoder is reached. The first two bytes choose how the stream is split.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from fuzz.target import Finding
from fuzz.values import random_message
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages import request_class, response_class
from protocol.schema import ApiMessage
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from protocol.transport.limits import ServerLimits
from protocol.transport.memory import RequestMemory
from protocol.transport.server import Server
from runtime.clock import ManualClock
from runtime.log import captured
from runtime.tasks import Supervisor

TURNS = 8
REQUEST_BYTES_MAX = 1 << 20


class _Wire(asyncio.Transport):
    """A transport that counts the bytes written, and reads until `pause_reading` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_bytes = 0
        self.closed = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.sent_bytes += len(data)

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close


class _Supervisor(Supervisor):
    def survive(
        self,
        work: str,
        error: BaseException,
        data: bytes | bytearray | memoryview = b"",
        /,
        **about: Any,
    ) -> None:
        raise Finding(f"{about['api']}: {error!r}") from error


def _table() -> HandlerTable:
    table = HandlerTable()
    table.serve_api_versions()
    for api in ApiKey:
        if api is ApiKey.API_VERSIONS or not exists(api):
            continue
        unstable = request_class(api).UNSTABLE
        nobodys = bool(unstable) and unstable.first == 0
        table.register(api, (_at_once, _later, _in_a_task)[api % 3], own_only=nobodys)
    return table


def exists(api: ApiKey) -> bool:
    """Return whether the protocol still has the API."""
    try:
        request_class(api)
    except LookupError:
        return False
    return True


def _at_once(context: RequestContext, request: Any) -> Reply:
    return response_class(context.api_key)()


def _later(context: RequestContext, request: Any) -> Reply:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ApiMessage] = loop.create_future()
    loop.call_soon(future.set_result, response_class(context.api_key)())
    return future


async def _in_a_task(context: RequestContext, request: Any) -> ApiMessage:
    await asyncio.sleep(0)
    return response_class(context.api_key)()


class Frames:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._table = _table()
        self._clock = ManualClock()

    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        out = []
        for api in filter(exists, ApiKey):
            cls = request_class(api)
            for version in cls.VERSIONS.each():
                frame = request_frame(rng, api, version)
                out.append(rng.randbytes(2) + frame)
        for _ in range(100):
            frames = [rng.choice(out)[2:] for _ in range(rng.randint(2, 12))]
            out.append(rng.randbytes(2) + b"".join(frames))
        return out

    def run(self, data: bytes) -> None:
        if len(data) > 2:
            with captured():
                self._loop.run_until_complete(self._feed(data[:2], data[2:]))

    async def _feed(self, how: bytes, data: bytes) -> None:
        memory = RequestMemory(1 << 18 if how[0] & 1 else 0)
        server = Server(
            self._table,
            clock=self._clock,
            listener="FUZZ",
            limits=ServerLimits(
                request_bytes_max=REQUEST_BYTES_MAX,
                receive_buffer_bytes=1 << (12 + how[0] % 7),
                max_inflight=1 + how[0] % 5,
            ),
            memory=memory,
            supervisor=_Supervisor(),
        )
        connection = ServerConnection(server, 1)
        wire = _Wire()
        connection.connection_made(wire)
        cuts = random.Random(how[1])
        view = memoryview(data)
        patience = len(data) + 1000
        while view and not wire.closed:
            if not wire.reading:
                await asyncio.sleep(0)
                patience -= 1
                if not patience:
                    raise Finding("the connection is not read any more")
                continue
            size = cuts.choice((1, 3, 4, 100, 5000, len(view))) if how[1] & 1 else len(view)
            room = connection.get_buffer(-1)
            if not len(room):
                raise Finding("no buffer for received bytes")
            taken = min(len(room), size, len(view))
            room[:taken] = view[:taken]
            room.release()
            connection.buffer_updated(taken)
            view = view[taken:]
            if memory.used_bytes > 8 * len(data) + 4096 * 8:
                raise Finding(f"{memory.used_bytes} bytes of memory for {len(data)} bytes received")
        for _ in range(TURNS):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await server.supervisor.close()
        if memory.used_bytes:
            raise Finding(f"{memory.used_bytes} bytes of memory not released")

    def close(self) -> None:
        self._loop.close()


def request_frame(rng: random.Random, api: ApiKey, version: int) -> bytes:
    """Return a whole request frame with random content."""
    message = random_message(rng, request_class(api), version)
    client_id = rng.choice((None, "", "client"))
    header = encode_request_header(RequestHeader(api, version, rng.randrange(100), client_id))
    body = header + encode(message, version)
    return len(body).to_bytes(4, "big") + body


def make() -> Frames:
    return Frames()
