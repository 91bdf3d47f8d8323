"""Keep-alive options of sockets, which detect peers whose machine is gone (F5)."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import pytest

from protocol.transport.client import Connection
from protocol.transport.half_open import OPTIONS, notice_when_gone
from testkit.memory.sockets import Echo, serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this")


def asked_of(transport: asyncio.BaseTransport) -> dict[str, int]:
    connected = transport.get_extra_info("socket")
    return {
        name: connected.getsockopt(getattr(socket, level), getattr(socket, name))
        for level, name, _ in OPTIONS
    }


ALL = {name: value for _, name, value in OPTIONS}


@pytest.mark.parametrize("between_nodes", [True, False])
async def test_half_open_detection_is_set_at_both_ends_only_between_nodes(
    between_nodes: bool,
) -> None:
    async with serving(Echo().table(), for_nodes=between_nodes) as server:
        connection = await Connection.connect(*server.address, between_nodes=between_nodes)
        (accepted,) = server.connections
        for transport in (connection._transport, accepted._transport):
            assert (asked_of(transport) == ALL) is between_nodes
        await connection.close()


class Transport(asyncio.BaseTransport):
    def __init__(self, connected: Any) -> None:
        super().__init__({"socket": connected})


def test_a_transport_without_a_socket_is_left_alone() -> None:
    notice_when_gone(Transport(None))


def test_notice_when_gone_ignores_a_closed_socket() -> None:
    closed = socket.socket()
    closed.close()
    notice_when_gone(Transport(closed))


def test_half_open_detection_omits_socket_options_the_system_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    with socket.socket() as connected:
        notice_when_gone(Transport(connected))
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
