"""Shell: Detection of half-open connections: the peer's machine lost its power or its network.

Such a peer sends no FIN, so that a side that only reads would wait indefinitely. Between nodes the
kernel detects it. After a second without data it sends a probe, and ends the connection if no
response arrives within another second. Bytes that the peer does not acknowledge for a second end
the connection, too. The peer's kernel responds to probes, so that a paused or slow process is not
mistaken for a failed machine.

The limit for unacknowledged bytes also applies while a peer does not read and its buffers are full.
Therefore this is used only for connections whose peer reads all bytes soon: requests of nodes, and
responses of controllers. A paused consumer would be disconnected.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

SILENT_S: Final = 1
UNACKNOWLEDGED_MS: Final = 1_000

OPTIONS: Final = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", SILENT_S),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", SILENT_S),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 1),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS),
)
"""Names of `socket` constants; options that the system does not have are skipped."""


def notice_when_gone(transport: asyncio.BaseTransport) -> None:
    """End the connection when its peer's machine has failed.

    A transport without a socket (in the simulation), or whose peer has already closed it, is not
    changed.
    """
    connected = transport.get_extra_info("socket")
    if connected is None:
        return
    for level, name, value in OPTIONS:
        option = getattr(socket, name, None)
        if option is None:
            continue
        try:
            connected.setsockopt(getattr(socket, level), option, value)
        except OSError:
            return
