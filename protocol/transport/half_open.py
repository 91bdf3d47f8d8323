"""Shell: Connections whose other end is gone without a word: no power, or no network.

No FIN comes then, and a side that only waits would wait for ever. Between nodes the kernel is
asked to find out: after a second of silence it probes, and gives the connection up when there is no
answer within a second more; what was sent and is not acknowledged ends it after a second. It is
the peer's kernel that answers, so a process that is paused or slow is not taken for gone.

The time for what was sent also runs while the peer leaves it in its buffers. So this is for
connections on which little is sent that the peer might not read: requests of nodes, and what
controllers answer. A consumer that pauses is none of these.
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
"""As `socket` calls them; those that a system does not have are left out."""


def notice_when_gone(transport: asyncio.BaseTransport) -> None:
    """Has the connection end when its peer's machine does not answer. A transport without a socket
    (the simulation's), or whose peer has left already, is left as it is."""
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
