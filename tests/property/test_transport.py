"""Laws of the server's connection over arbitrary chunks, without sockets.

However the network splits a stream of requests, the replies are the same bytes; and no stream of
bytes does more than close the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.schema import ApiMessage
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import RequestContext
from protocol.transport.limits import ServerLimits
from protocol.transport.server import Server
from runtime.clock import ManualClock
from runtime.log import captured
from testkit.memory.sockets import Echo, heartbeat, metadata, request_bytes
from testkit.memory.turns import until


class Wire(asyncio.Transport):
    """A transport that keeps written bytes, and holds back received ones while reading is
    paused."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.sent += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close


class Waiting(Echo):
    """A handler whose Heartbeats wait; the next event-loop iteration answers the newest first."""

    def heartbeat(
        self, context: RequestContext, request: HeartbeatRequest
    ) -> asyncio.Future[ApiMessage | None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ApiMessage | None] = loop.create_future()
        reply = HeartbeatResponse(throttle_time_ms=len(request.group_id))
        rounds = len(request.group_id) % 4

        def later(left: int) -> None:
            if left:
                loop.call_soon(later, left - 1)
            else:
                future.set_result(reply)

        later(rounds)
        return future


async def replies(chunks: list[bytes], limits: ServerLimits) -> tuple[bytes, bool]:
    server = Server(Waiting().table(), clock=ManualClock(), listener="X", limits=limits)
    connection = ServerConnection(server, 1)
    wire = Wire()
    connection.connection_made(wire)
    for chunk in chunks:
        view = memoryview(chunk)
        while view and not wire.closed:
            await until(lambda: wire.reading or wire.closed)
            if wire.closed:
                break
            room = connection.get_buffer(len(view))
            taken = min(len(room), len(view))
            assert taken > 0
            room[:taken] = view[:taken]
            room.release()
            connection.buffer_updated(taken)
            view = view[taken:]
    for _ in range(50):
        await asyncio.sleep(0)
    sent = bytes(wire.sent)
    connection.connection_lost(None)
    return sent, wire.closed


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[low:high] for low, high in zip(edges, edges[1:], strict=False)]


def run(chunks: list[bytes], limits: ServerLimits) -> tuple[bytes, bool]:
    with captured():
        return asyncio.run(replies(chunks, limits))


requests = st.one_of(
    st.builds(metadata, st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=50)),
    st.builds(lambda size, id: heartbeat("g" * size, id), st.integers(0, 40), st.integers(0, 99)),
    st.builds(
        lambda size: request_bytes(HeartbeatRequest(group_id="x" * size), 4),
        st.integers(10_000, 30_000),
    ),
)


@given(
    st.lists(requests, max_size=12),
    st.lists(st.integers(0, 10**6), max_size=12),
    st.integers(1, 5),
    st.sampled_from([1 << 14, 1 << 15, 1 << 18]),
)
@settings(max_examples=150, deadline=None)
def test_cuts_change_nothing(
    stream: list[bytes], places: list[int], inflight: int, buffer_bytes: int
) -> None:
    data = b"".join(stream)
    whole = run([data], ServerLimits())
    limits = ServerLimits(max_inflight=inflight, receive_buffer_bytes=buffer_bytes)
    assert run(cut(data, places), limits) == whole
    assert not whole[1]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
@settings(max_examples=200, deadline=None)
def test_any_bytes_at_most_close(raw: bytes, places: list[int]) -> None:
    run(cut(raw, places), ServerLimits())
    framed = len(raw).to_bytes(4, "big") + raw
    run(cut(framed, places), ServerLimits())
    served: Callable[[bytes], bytes] = lambda body: b"\x00\x03\x00\x0c" + body  # noqa: E731
    body = served(raw)
    run([len(body).to_bytes(4, "big") + body], ServerLimits())
