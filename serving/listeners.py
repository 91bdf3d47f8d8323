"""Shell: Listeners of one role, bound in the order of the configuration and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from protocol.transport.admission import ConnectionGate
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import HandlerTable
from protocol.transport.limits import ServerLimits
from protocol.transport.memory import RequestMemory
from protocol.transport.server import Server
from runtime.clock import Clock
from runtime.config import Listener
from runtime.log import get_logger
from runtime.tasks import Supervisor

SECURITY_PROTOCOL_IDS: Final[Mapping[str, int]] = {
    "PLAINTEXT": 0,
    "SSL": 1,
    "SASL_PLAINTEXT": 2,
    "SASL_SSL": 3,
}

_log = get_logger("serving.listeners")


class Listeners:
    """The open listeners of a role.

    servers: in the order of binding. bound: host and port by listener name.
    """

    def __init__(
        self, *, clock: Clock, supervisor: Supervisor, limits: ServerLimits, gate: ConnectionGate
    ) -> None:
        self.servers: list[Server] = []
        self.bound: dict[str, tuple[str, int]] = {}
        self._clock = clock
        self._supervisor = supervisor
        self._limits = limits
        self._gate = gate

    async def bind(
        self,
        listener: Listener,
        handlers: HandlerTable,
        *,
        memory: RequestMemory | None,
        on_admit: Callable[[ServerConnection], str | None] | None = None,
        for_nodes: bool = False,
    ) -> None:
        """Bind `listener` to its address; `listen` starts to accept connections.

        Args:
            handlers: APIs of the listener.
            for_nodes: whether the clients are nodes of the cluster.

        Raises:
            OSError: the address is in use.
        """
        server = Server(
            handlers,
            clock=self._clock,
            listener=listener.name,
            limits=self._limits,
            supervisor=self._supervisor,
            gate=self._gate,
            memory=memory,
            on_admit=on_admit,
            for_nodes=for_nodes,
        )
        self.servers.append(server)
        await server.bind(listener.host, listener.port)
        self.bound[listener.name] = server.address

    async def listen(self) -> None:
        """Accept connections at all bound addresses."""
        for server in self.servers:
            await server.listen()
            host, port = server.address
            _log.info("Listening", listener=server.listener, host=host, port=port)

    def advertised(self, configured: Iterable[Listener]) -> list[Listener]:
        """Return the configured listeners to advertise, with port 0 replaced by the bound port."""
        return [
            listener if listener.port else listener._replace(port=self.bound[listener.name][1])
            for listener in configured
        ]

    async def close(self, grace_ms: float) -> None:
        """Close all listeners at once; connections have `grace_ms` to end."""
        await asyncio.gather(*(server.close(grace_ms) for server in self.servers))
