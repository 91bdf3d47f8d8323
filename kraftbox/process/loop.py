"""The event loop of a node, which can cut the node off from the network.

`cut_off` attaches a packet filter to every TCP socket of the process that drops incoming packets.
Peers see a node that neither answers nor refuses, and the node sees its peers in the same way.
Outgoing data is paced at one byte per second, and new outgoing connections wait. `reconnect` resets
the old connections: each peer notices when it next sends. Linux only.
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
    # uvloop has no wheels for some machines; asyncio's own loop does the same, more slowly.
    from asyncio import SelectorEventLoop as Loop  # type: ignore[assignment]

SO_ATTACH_FILTER = 26
SO_DETACH_FILTER = 27
SO_MAX_PACING_RATE = 47
NO_LIMIT = 0xFFFF_FFFF
SWEEP_S = 0.05
"""How often the filters are attached again: a connection accepted during the cut has none yet."""


class CuttableLoop(Loop):
    """uvloop, or asyncio's loop without it, with `cut_off` and `reconnect`."""

    def __init__(self) -> None:
        super().__init__()
        self._connected: asyncio.Event | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self._connected is not None:
            await self._connected.wait()
        return await super().create_connection(*args, **kwargs)

    def cut_off(self) -> None:
        """Drop everything that arrives from now on. Raises OSError if that is impossible."""
        if sys.platform != "linux":
            raise OSError(errno.ENOTSUP, "cut-off is only supported on Linux")
        if self._connected is None:
            self._connected = asyncio.Event()
            self._cut_all()

    def reconnect(self) -> None:
        """Undo `cut_off` and reset the connections. Raises OSError."""
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
    """Yield the TCP sockets of this process, each valid until the next; it closes none of them."""
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

    # A packet filter of one instruction: return 0 bytes, that is, drop.
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
        # Send a reset as soon as the loop reads the end and closes the socket.
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            # The socket was still connecting, or its connection has ended.
            if error.errno != errno.ENOTCONN:
                raise
    each.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
