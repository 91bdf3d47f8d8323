"""The receive buffer of one connection: it holds bytes until they are cut into frames.

All connections of a listener receive into one shared buffer, and frames are slices of it. Only the
rest of an incomplete frame moves to a buffer of the connection's own. That buffer grows as the
frame's bytes arrive. It begins with room for four frames like the last one, so that large requests
need few system calls. A connection without a frame in progress holds no buffer, and an announced
length costs nothing. `memory.py` limits the sum of all buffers.

A pure state machine: it uses no socket, event loop or clock.
"""

from __future__ import annotations

import struct
from typing import Final

from protocol.transport.memory import SCARCE_BYTES, RequestMemory, SpareBuffers, Starving

_int32 = struct.Struct(">i").unpack_from

NOTHING: Final = memoryview(b"")

BYTES_FIRST: Final = 512
BYTES_KEPT: Final = 1_114_112
"""A larger buffer shrinks as soon as it can: 1 MiB of records and their request fit into this."""
ROOM_BYTES_MIN: Final = 4096
GROWTH: Final = 4
"""A full buffer grows by this factor up to the usual size, then it doubles."""


class BufferSpace:
    """The buffers of a listener's connections: the shared one, the free ones, and the budget."""

    __slots__ = ("memory", "shared", "spare", "usual_bytes")

    def __init__(self, memory: RequestMemory, usual_bytes: int) -> None:
        self.memory = memory
        self.usual_bytes = usual_bytes
        self.shared = memoryview(bytearray(usual_bytes))
        self.spare = SpareBuffers(usual_bytes)


class ReceiveBuffer:
    """Bytes that arrived on one connection and are not cut into frames yet.

    The order of calls: `room`, `received`, cut frames, `keep_rest`. Frames are slices of `view`,
    and are invalid after `keep_rest`.
    """

    __slots__ = (
        "_space",
        "end",
        "frame_bytes",
        "memory",
        "own_bytes",
        "start",
        "starving",
        "view",
    )

    def __init__(self, space: BufferSpace) -> None:
        self._space = space
        self.memory = space.memory
        # `view[start:end]` is not cut yet. The view is of the shared buffer while new bytes are
        # cut, then of the own buffer of `own_bytes`, or empty. The code that cuts moves `start`.
        self.view = NOTHING
        self.start = 0
        self.end = 0
        self.frame_bytes = 0
        """The size of the last frame, which the code that cuts it sets."""
        self.own_bytes = 0
        self.starving = False
        """True if the frame in progress waits for memory, so that no more bytes fit."""

    def room(self, little: int) -> memoryview:
        """Return the space for the next bytes; it is small with `little` or if memory is short."""
        if self.end:
            return self.view[self.end :]
        space = self._space
        if little or self.memory.scarce:
            return space.shared[:SCARCE_BYTES]
        return space.shared[:]

    def received(self, size_bytes: int) -> None:
        """Add the bytes that were received into the space that `room` returned."""
        if not self.end:
            self.view = self._space.shared
        self.end += size_bytes

    # --- the bytes of an incomplete frame ------------------------------------------------------

    def keep_rest(self, owner: Starving, now_ms: float, looked: bool) -> None:
        """Move the bytes that are not cut yet to the own buffer, with space for more.

        Args:
            owner: its `feed` is called once memory is free, if there is too little now.
            looked: no complete frame is left in the buffer.
        """
        held = self.end - self.start
        own = self.own_bytes
        if not held:
            self.start = self.end = 0
            if own:
                self.own_bytes = 0
                self._space.spare.put(self.view)
                self.memory.give_back(own)
            self.view = NOTHING
        elif not own:
            # These bytes have arrived and must be kept, even over the memory limit.
            size = max(self._fitting(held), self._expected())
            self.memory.charge(size)
            self._move_to(size)
        elif self.end == own:
            self._find_room(owner, held, now_ms, looked)
        elif own > BYTES_KEPT:
            self.shrink()

    def detach(self) -> int:
        """Give the own buffer to the holder of the last frame.

        Returns: the bytes that the holder must give back to the memory; 0 if the frame is in the
        shared buffer.
        """
        own, self.own_bytes = self.own_bytes, 0
        if own:
            if held := self.end - self.start:
                size = self._fitting(held)
                self.memory.charge(size)
                self._move_to(size)
            else:
                self.start = self.end = 0
                self.view = NOTHING
        return own

    def drop(self) -> None:
        """Discard the remaining bytes; `keep_rest` then releases the buffer."""
        self.start = self.end

    def _find_room(self, owner: Starving, held: int, now_ms: float, looked: bool) -> None:
        """Make space in the full own buffer: move its bytes to its start, or enlarge it."""
        own = self.own_bytes
        if held <= own // 2:
            self.view[:held] = self.view[self.start : self.end]
            self.start, self.end = 0, held
            return
        if not looked:
            # Space may become free when the complete frames are cut.
            return
        usual = self._space.usual_bytes
        if own < usual:
            size = min(own * GROWTH, usual)
        else:
            size = min(own * 2, max(self._frame_bytes(held), held + ROOM_BYTES_MIN))
        self.starving = not self.memory.grant(owner, size - own, now_ms)
        if not self.starving:
            self._move_to(size)

    def _frame_bytes(self, held: int) -> int:
        """Return the size in bytes of the first frame with its length; 4 if it is unknown yet."""
        return 4 + int(_int32(self.view, self.start)[0]) if held >= 4 else 4

    def _fitting(self, held: int) -> int:
        """Return the size in bytes of an own buffer for `held` bytes."""
        if 2 * held > self._space.usual_bytes:
            return min(4 * held, max(self._frame_bytes(held), held + ROOM_BYTES_MIN))
        size = BYTES_FIRST
        while size < 2 * held:
            size *= 2
        return size

    def _expected(self) -> int:
        """Return the space for the next frames, estimated from the last frame; 0 if memory is
        short."""
        if not self.frame_bytes or self.memory.scarce:
            return 0
        room: int = 1 << (4 * self.frame_bytes - 1).bit_length()
        return min(room, self._space.usual_bytes)

    def _move_to(self, size_bytes: int) -> None:
        """Move the remaining bytes to an own buffer of this size."""
        held = self.end - self.start
        before, spare = self.view, self._space.spare
        self.view = spare.take(size_bytes)
        self.view[:held] = before[self.start : self.end]
        if self.own_bytes:
            spare.put(before)
        self.start, self.end = 0, held
        self.own_bytes = size_bytes

    def shrink(self) -> None:
        """Move the bytes to a smaller own buffer if at most half of this one is needed."""
        own = self.own_bytes
        if own and (size := self._fitting(self.end - self.start)) <= own // 2:
            self._move_to(size)
            self.memory.give_back(own - size)
