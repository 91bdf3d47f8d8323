"""The exchange of requests and replies on one connection, as a pure state machine.

Bytes go in, requests come out one by one; replies are put in as they become ready, in any order,
and their bytes come out in the order of the requests. Another layer below, as TLS is one, changes
nothing here: this machine knows no socket, no loop and no clock.

The rules
- A reply that is not ready when its request was served keeps its place (`enqueue`); those behind it
  wait, too.
- No request is cut, and no byte should be read, while any hold is set: `holds` has one bit for each
  reason. `max_inflight` places that wait are one of them, so what is served is bounded.
- Replies are collected until `take`: a system call costs more than a small reply.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

from protocol.errors import ProtocolError
from protocol.schema import Buffer
from protocol.transport.memory import Starving
from protocol.transport.receive_buffer import BufferSpace, ReceiveBuffer

_int32 = struct.Struct(">i").unpack_from

# Why no request is cut. Plain integers: an enum's operators cost a microsecond.
NOT_ADMITTED: Final = 1
WRITE_PAUSED: Final = 2
TURN_OVER: Final = 4
MUTED: Final = 8
INFLIGHT: Final = 16
DRAINING: Final = 32
CLOSED: Final = 64
DECODING: Final = 128

FIRST_REQUEST_BYTES_MAX: Final = 512 * 1024
"""The largest frame of a connection on which no request was served yet."""
REQUESTS_PER_TURN: Final = 64
"""Requests of one connection served before others get the loop."""
REPLIES_TOGETHER_BYTES: Final = 16_384
"""Replies are collected up to this size; more are written as they come."""


class Place:
    """A reply's place in the order of the requests. It is ready when `parts` are there, or when it
    is known that there will be none."""

    __slots__ = ("parts", "ready", "size")

    def __init__(self) -> None:
        self.ready = False
        self.size = 0
        self.parts: list[Buffer] = []


P = TypeVar("P", bound=Place)


class Exchange(Generic[P]):
    """One connection's state.

    After bytes were received by `buffer`: all of `requests`, then `end_turn`. What was sent is
    `out`; `take` hands it over.
    """

    __slots__ = (
        "_left",
        "_max_inflight",
        "_mutes",
        "_request_bytes_max",
        "_size_max",
        "buffer",
        "holds",
        "out",
        "out_bytes",
        "waiting",
    )

    def __init__(self, space: BufferSpace, request_bytes_max: int, max_inflight: int) -> None:
        self.buffer = ReceiveBuffer(space)
        self.holds = NOT_ADMITTED
        self.out: list[Buffer] = []
        self.out_bytes = 0
        self._size_max = min(request_bytes_max, FIRST_REQUEST_BYTES_MAX)
        self._request_bytes_max = request_bytes_max
        self._max_inflight = max_inflight
        self._left = REQUESTS_PER_TURN
        self._mutes = 0
        self.waiting: list[P] = []
        """Replies that wait, or are ready behind one that does; to be read only."""

    # --- requests ------------------------------------------------------------------------------

    def requests(self) -> Iterator[memoryview]:
        """The requests that are whole, one by one, until a hold is set or there were as many as
        fit into a turn of the loop. Each is a slice of the buffer, without its length.

        Raises ProtocolError for a length that no request may have.
        """
        buffer = self.buffer
        left = REQUESTS_PER_TURN
        size = 0
        while not self.holds:
            start = buffer.start
            body = start + 4
            if body > buffer.end:
                break
            size = _int32(buffer.view, start)[0]
            if not 0 <= size <= self._size_max:
                self._check_size(size)
            stop = body + size
            if stop > buffer.end:
                break
            if not left:
                self.holds |= TURN_OVER
                break
            left -= 1
            buffer.start = stop
            buffer.frame_bytes = size
            yield buffer.view[body:stop]
        self._left = left

    def _check_size(self, size: int) -> None:
        """Allow requests of any size once one was served: one that cannot be read closes."""
        if self.buffer.frame_bytes:
            self._size_max = self._request_bytes_max
        if not 0 <= size <= self._size_max:
            raise ProtocolError("size of a request", size, f"0-{self._size_max}")

    def end_turn(self, owner: Starving, now_ms: float) -> bool:
        """No request is looked at any more: what is left is kept, and the views are over.

        Whether the turn was too short: TURN_OVER is to be released when others had theirs.
        """
        buffer, holds = self.buffer, self.holds
        if holds & CLOSED:
            buffer.drop()
        buffer.keep_rest(owner, now_ms, not holds)
        if buffer.memory.is_limited and self._left < REQUESTS_PER_TURN:
            buffer.memory.settle(owner)
        return holds & TURN_OVER != 0 and not self._left

    def feed(self, owner: Starving, now_ms: float) -> None:
        """There may be memory for the request in progress."""
        self.buffer.starving = False
        self._keep_rest(owner, now_ms)

    def _keep_rest(self, owner: Starving, now_ms: float) -> None:
        holds = self.holds
        if holds & CLOSED:
            self.buffer.drop()
        self.buffer.keep_rest(owner, now_ms, not holds)

    # --- holds ---------------------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Whether more bytes should be read."""
        return not (self.holds or self.buffer.starving)

    def hold(self, reason: int) -> None:
        """Cut no request for this reason."""
        self.holds |= reason

    def release(self, reason: int) -> None:
        """The reason is over."""
        self.holds &= ~reason

    def mute(self) -> None:
        """Cut no request until `unmute` was called as often."""
        self._mutes += 1
        self.holds |= MUTED

    def unmute(self) -> None:
        """One reason to be silent is over."""
        self._mutes -= 1
        if not self._mutes:
            self.holds &= ~MUTED

    @property
    def is_busy(self) -> bool:
        """Whether the other side waits for this one. It does not while it reads no replies."""
        holds = self.holds
        if holds & CLOSED:
            return False
        waits = bool(self.waiting) and not holds & WRITE_PAUSED
        return waits or holds & (MUTED | DECODING) != 0 or self.buffer.starving

    # --- replies -------------------------------------------------------------------------------

    def enqueue(self, place: P) -> None:
        """The last request's reply has its place behind those that wait."""
        self.waiting.append(place)
        if len(self.waiting) >= self._max_inflight:
            self.holds |= INFLIGHT

    def next_ready(self) -> P | None:
        """The first place in the order if its reply is ready; it is to be sent."""
        waiting = self.waiting
        if not waiting or not waiting[0].ready:
            return None
        if len(waiting) <= self._max_inflight:
            self.holds &= ~INFLIGHT
        return waiting.pop(0)

    def end(self, owner: Starving, now_ms: float) -> None:
        """The connection is gone, and all that it held."""
        self.holds |= CLOSED
        self.waiting.clear()
        self.out.clear()
        self._keep_rest(owner, now_ms)
        self.buffer.memory.settle(owner)

    def send(self, size_bytes: int, parts: list[Buffer]) -> None:
        """These bytes are next. The caller keeps the order: no place may wait before them."""
        self.out += parts
        self.out_bytes += size_bytes

    def take(self) -> Sequence[Buffer]:
        """What is to be written now: small replies in one piece, large ones as they are."""
        parts, size = self.out, self.out_bytes
        self.out, self.out_bytes = [], 0
        if size <= REPLIES_TOGETHER_BYTES and len(parts) > 1:
            return [b"".join(parts)]
        return parts
