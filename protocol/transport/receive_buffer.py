"""The receive buffer of one connection: where bytes lie until they are cut into frames.

What arrives on any connection of a listener arrives in one buffer that they share, and is cut into
frames where it lies, as slices. Only what is left of an incomplete frame moves to a buffer of the
connection's own, which grows as that frame's bytes arrive, and begins with room for four frames
like the last one: who sends much is read in few system calls. So a connection without a frame in
progress holds no buffer, and an announced length costs nothing. `memory.py` says how much all of
them may hold.

A pure state machine: it knows no socket, no loop and no clock.
"""

from __future__ import annotations

import struct
from typing import Final

from protocol.transport.memory import SCARCE_BYTES, RequestMemory, SpareBuffers, Starving

_int32 = struct.Struct(">i").unpack_from

NOTHING: Final = memoryview(b"")

BYTES_FIRST: Final = 512
BYTES_KEPT: Final = 1_114_112
"""A buffer above this size shrinks as soon as less is in it: 1 MiB of records and their request."""
ROOM_BYTES_MIN: Final = 4096
GROWTH: Final = 4
"""A full buffer grows by this factor up to the usual size, then it doubles."""


class BufferSpace:
    """Where the connections of one listener receive: the buffer that they share, those that are
    free, and the budget of all."""

    __slots__ = ("memory", "shared", "spare", "usual_bytes")

    def __init__(self, memory: RequestMemory, usual_bytes: int) -> None:
        self.memory = memory
        self.usual_bytes = usual_bytes
        self.shared = memoryview(bytearray(usual_bytes))
        self.spare = SpareBuffers(usual_bytes)


class ReceiveBuffer:
    """Bytes that arrived on one connection and are not cut yet.

    The order of calls: `room`, `received`, frames are cut, `keep_rest`. Frames are slices of
    `view`: their time ends with `keep_rest`.
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
        # `view[start:end]` is not cut yet. The view is of the shared buffer while what just arrived
        # is cut, then of one with `own_bytes`, or of nothing. Who cuts moves `start`.
        self.view = NOTHING
        self.start = 0
        self.end = 0
        self.frame_bytes = 0
        """The size of the last frame that was cut, as far as its cutter says."""
        self.own_bytes = 0
        self.starving = False
        """Whether the frame in progress waits for memory: there is no room for more."""

    def room(self, little: int) -> memoryview:
        """Where the next bytes go; with `little`, and while memory is used up, few at once."""
        if self.end:
            return self.view[self.end :]
        space = self._space
        if little or self.memory.scarce:
            return space.shared[:SCARCE_BYTES]
        return space.shared[:]

    def received(self, size_bytes: int) -> None:
        """So many bytes are in the room that was given last."""
        if not self.end:
            self.view = self._space.shared
        self.end += size_bytes

    # --- the bytes of an incomplete frame ------------------------------------------------------

    def keep_rest(self, owner: Starving, now_ms: float, looked: bool) -> None:
        """Put what is not cut yet where it may stay, with room for more.

        `looked` says that no whole frame is left. `owner` is fed when memory for it is there.
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
            # These bytes are here and must be kept, whatever memory says.
            size = max(self._fitting(held), self._expected())
            self.memory.charge(size)
            self._move_to(size)
        elif self.end == own:
            self._find_room(owner, held, now_ms, looked)
        elif own > BYTES_KEPT:
            self.shrink()

    def detach(self) -> int:
        """Leave the own buffer to the holder of the frame that was cut last.

        Returns: the bytes that the holder has to give back to the memory, 0 for a frame that is not
        in a buffer of the connection's own.
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
        """Nothing of what is held will be cut; `keep_rest` gives it back."""
        self.start = self.end

    def _find_room(self, owner: Starving, held: int, now_ms: float, looked: bool) -> None:
        """The own buffer is filled to its end."""
        own = self.own_bytes
        if held <= own // 2:
            self.view[:held] = self.view[self.start : self.end]
            self.start, self.end = 0, held
            return
        if not looked:
            # There may be room when its frames are cut.
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
        """The size of the first frame that is held, as far as it is known."""
        return 4 + int(_int32(self.view, self.start)[0]) if held >= 4 else 4

    def _fitting(self, held: int) -> int:
        """How large an own buffer for so many bytes should be."""
        if 2 * held > self._space.usual_bytes:
            return min(4 * held, max(self._frame_bytes(held), held + ROOM_BYTES_MIN))
        size = BYTES_FIRST
        while size < 2 * held:
            size *= 2
        return size

    def _expected(self) -> int:
        """Room for what this connection probably sends next, by the frame that it sent last; 0
        while memory is short."""
        if not self.frame_bytes or self.memory.scarce:
            return 0
        room: int = 1 << (4 * self.frame_bytes - 1).bit_length()
        return min(room, self._space.usual_bytes)

    def _move_to(self, size_bytes: int) -> None:
        """To an own buffer of this size."""
        held = self.end - self.start
        before, spare = self.view, self._space.spare
        self.view = spare.take(size_bytes)
        self.view[:held] = before[self.start : self.end]
        if self.own_bytes:
            spare.put(before)
        self.start, self.end = 0, held
        self.own_bytes = size_bytes

    def shrink(self) -> None:
        """To a smaller own buffer, if what is held leaves much of this one free."""
        own = self.own_bytes
        if own and (size := self._fitting(self.end - self.start)) <= own // 2:
            self._move_to(size)
            self.memory.give_back(own - size)
