"""Framing of requests and ordering of replies on one connection, as a pure state machine.

The caller feeds bytes and receives requests one by one. It adds replies as they become ready, in
any order, and receives their bytes in the order of the requests. The machine uses no socket, event
loop or clock, so a layer such as TLS can be added below it.

Rules
- A reply that is not ready after its request was served has a place in the order (`enqueue`); the
  replies behind it wait, too.
- While a hold is set, no request is framed and the caller reads no bytes. `holds` has one bit for
  each reason. One reason is that `max_inflight` replies are pending: it bounds the requests in
  progress.
- Replies are collected until `take`, because a system call costs more than a small reply.
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

# Reasons to frame no request. They are plain integers: an enum's operators cost a microsecond.
NOT_ADMITTED: Final = 1
WRITE_PAUSED: Final = 2
TURN_OVER: Final = 4
MUTED: Final = 8
INFLIGHT: Final = 16
DRAINING: Final = 32
CLOSED: Final = 64
DECODING: Final = 128

FIRST_REQUEST_BYTES_MAX: Final = 512 * 1024
"""Limit of the first request's frame on a connection."""
REQUESTS_PER_TURN: Final = 64
"""Limit of one connection's requests in an event-loop iteration."""
REPLIES_TOGETHER_BYTES: Final = 16_384
"""Replies are collected up to this size; larger ones are written at once."""


class Place:
    """A reply's place in the order of the requests.

    It is ready once `parts` has the reply, or stays empty because the request has no response.
    """

    __slots__ = ("parts", "ready", "size")

    def __init__(self) -> None:
        self.ready = False
        self.size = 0
        self.parts: list[Buffer] = []


P = TypeVar("P", bound=Place)


class Exchange(Generic[P]):
    """The state of one connection.

    After `buffer` has received bytes, the caller iterates over `requests` and then calls
    `end_turn`. Sent replies are in `out` until the caller fetches them with `take`.
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
        """Pending replies, and ready ones behind a pending one. Callers must not change it."""

    # --- requests ------------------------------------------------------------------------------

    def requests(self) -> Iterator[memoryview]:
        """Yield each complete request as a slice of the buffer, without its length.

        It ends when a hold is set, or at the limit of requests per event-loop iteration.

        Raises:
            ProtocolError: the length of a request is not allowed.
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
        """Raise ProtocolError for a size above the limit, which rises after the first request.

        An unreadable request closes the connection, so one that was served is a valid one.
        """
        if self.buffer.frame_bytes:
            self._size_max = self._request_bytes_max
        if not 0 <= size <= self._size_max:
            raise ProtocolError("size of a request", size, f"0-{self._size_max}")

    def end_turn(self, owner: Starving, now_ms: float) -> bool:
        """Keep the remaining bytes; slices from `requests` are invalid afterwards.

        Returns: True if the request limit ended the iteration. The caller then releases TURN_OVER
        in the next one.
        """
        buffer, holds = self.buffer, self.holds
        if holds & CLOSED:
            buffer.drop()
        buffer.keep_rest(owner, now_ms, not holds)
        if buffer.memory.is_limited and self._left < REQUESTS_PER_TURN:
            buffer.memory.settle(owner)
        return holds & TURN_OVER != 0 and not self._left

    def feed(self, owner: Starving, now_ms: float) -> None:
        """Retry buffering the request in progress after request memory was released."""
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
        """True if more bytes should be read."""
        return not (self.holds or self.buffer.starving)

    def hold(self, reason: int) -> None:
        """Frame no request until this reason is released."""
        self.holds |= reason

    def release(self, reason: int) -> None:
        """End the hold for this reason."""
        self.holds &= ~reason

    def mute(self) -> None:
        """Frame no request until `unmute` has been called as often as `mute`."""
        self._mutes += 1
        self.holds |= MUTED

    def unmute(self) -> None:
        """Undo one call of `mute`."""
        self._mutes -= 1
        if not self._mutes:
            self.holds &= ~MUTED

    @property
    def is_busy(self) -> bool:
        """True if the client waits for this side; not while the client reads no replies."""
        holds = self.holds
        if holds & CLOSED:
            return False
        waits = bool(self.waiting) and not holds & WRITE_PAUSED
        return waits or holds & (MUTED | DECODING) != 0 or self.buffer.starving

    # --- replies -------------------------------------------------------------------------------

    def enqueue(self, place: P) -> None:
        """Add the last request's reply behind the pending ones."""
        self.waiting.append(place)
        if len(self.waiting) >= self._max_inflight:
            self.holds |= INFLIGHT

    def next_ready(self) -> P | None:
        """Remove and return the first place if its reply is ready, else None."""
        waiting = self.waiting
        if not waiting or not waiting[0].ready:
            return None
        if len(waiting) <= self._max_inflight:
            self.holds &= ~INFLIGHT
        return waiting.pop(0)

    def end(self, owner: Starving, now_ms: float) -> None:
        """Release all replies and buffers after the connection has ended."""
        self.holds |= CLOSED
        self.waiting.clear()
        self.out.clear()
        self._keep_rest(owner, now_ms)
        self.buffer.memory.settle(owner)

    def send(self, size_bytes: int, parts: list[Buffer]) -> None:
        """Append the next reply to `out`. The caller makes sure that no earlier one is pending."""
        self.out += parts
        self.out_bytes += size_bytes

    def take(self) -> Sequence[Buffer]:
        """Return the collected bytes and clear them: small replies joined, large ones in parts."""
        parts, size = self.out, self.out_bytes
        self.out, self.out_bytes = [], 0
        if size <= REPLIES_TOGETHER_BYTES and len(parts) > 1:
            return [b"".join(parts)]
        return parts
