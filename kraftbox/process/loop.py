"""A node's event loop, and how the node is cut off from all others.

A cut is made where packets are: every TCP socket of the process gets a filter that drops what
arrives, so that others see a peer that neither answers nor refuses, and the node sees the same of
them. What the node has to say is slowed down to a byte a second, and new connections of its own
wait. When it is over, the connections of before are reset: each side finds out at its next word.
Linux only.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any

try:
    from uvloop import Loop
except ImportError:
    # There is no wheel of it for every machine; asyncio's own loop does the same, more slowly.
    from asyncio import SelectorEventLoop as Loop  # type: ignore[assignment]

SO_ATTACH_FILTER = 26
SO_DETACH_FILTER = 27
SO_MAX_PACING_RATE = 47
NO_LIMIT = 0xFFFF_FFFF
SWEEP_S = 0.05
"""A connection that was accepted while the cut was made has no filter yet."""


class CuttableLoop(Loop):
    """uvloop, or asyncio's loop where there is none, with `cut_off` and `reconnect`."""

    def __init__(self) -> None:
        super().__init__()
        self._connected: asyncio.Event | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self._connected is not None:
            await self._connected.wait()
        return await super().create_connection(*args, **kwargs)

    def cut_off(self) -> None:
        """From now on nothing arrives. Raises OSError where it cannot be done."""
        if sys.platform != "linux":
            raise OSError(errno.ENOTSUP, "a node can be cut off on Linux only")
        if self._connected is None:
            self._connected = asyncio.Event()
            self._cut_all()

    def reconnect(self) -> None:
        """Undo it. Raises OSError."""
        if self._connected is None:
            return
        if self._sweep is not None:
            self._sweep.cancel()
        self._connected.set()
        self._connected = None
        for each in tcp_sockets():
            _open(each)

    def _cut_all(self) -> None:
        for each in tcp_sockets():
            _cut(each)
        self._sweep = self.call_later(SWEEP_S, self._cut_all)


def tcp_sockets() -> Iterator[socket.socket]:
    """The TCP sockets of this process, each valid until the next; none of them is closed."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=int(name))
        except OSError:
            continue
        try:
            if found.family in (socket.AF_INET, socket.AF_INET6) and (
                found.type & socket.SOCK_STREAM
            ):
                yield found
        finally:
            found.detach()


def _cut(each: socket.socket) -> None:
    import ctypes

    # One instruction of a packet filter: return 0 bytes, that is, drop.
    program = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))
    each.setsockopt(
        socket.SOL_SOCKET,
        SO_ATTACH_FILTER,
        struct.pack("@HP", 1, ctypes.addressof(program)),
    )
    each.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 1)


def _open(each: socket.socket) -> None:
    each.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=I", NO_LIMIT))
    if not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        # A reset, as soon as the loop sees the end and closes it.
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            # It was still connecting, or has ended.
            if error.errno != errno.ENOTCONN:
                raise
    each.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
