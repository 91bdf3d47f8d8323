from __future__ import annotations

import pytest

from protocol.transport.admission import ConnectionGate, ConnectionLimits
from protocol.transport.client import Connection
from protocol.transport.dispatch import HandlerTable
from protocol.transport.server import ServerLimits
from runtime.clock import SystemClock
from runtime.config import Listener
from runtime.tasks import Supervisor
from serving.listeners import Listeners


def listener(name: str, port: int = 0) -> Listener:
    return Listener(name, "127.0.0.1", port, "PLAINTEXT")


async def test_advertised_listeners_have_bound_ports() -> None:
    table = HandlerTable()
    table.serve_api_versions()
    listeners = Listeners(
        clock=SystemClock(),
        supervisor=Supervisor(),
        limits=ServerLimits(),
        gate=ConnectionGate(ConnectionLimits()),
    )
    for name in ("A", "B"):
        await listeners.bind(listener(name), table, memory=None)
    assert [server.listener for server in listeners.servers] == list(listeners.bound) == ["A", "B"]
    bound, given = listeners.advertised([listener("B"), listener("A", 9092)])
    assert (bound.port, given.port) == (listeners.bound["B"][1], 9092)
    with pytest.raises(ConnectionRefusedError):
        await Connection.connect(bound.host, bound.port, "test")
    await listeners.listen()
    connection = await Connection.connect(bound.host, bound.port, "test")
    await connection.close()
    await listeners.close(0)
    with pytest.raises(OSError):
        await Connection.connect(bound.host, bound.port, "test")
