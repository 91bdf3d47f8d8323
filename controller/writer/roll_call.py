"""Shell: Liveness check of brokers by a controller that has just become active.

The new controller saw no broker's connection close. Live brokers send a heartbeat once they have
found it. A broker whose old controller hangs needs as long as the quorum's fetch timeout for that,
so only then is silence a sign of death. A port that refuses a connection is a sign at once.

So with connection-loss fencing the controller connects to every unfenced broker and disconnects. If
a broker refuses, its process has ended (`Heartbeats.process_gone`), as for a voter that refuses
connections in the new epoch.

A broker that does send a heartbeat is judged by that. If no broker at all accepts a connection, the
refusals may be caused by the network and are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from controller.settings import ControllerSettings
from controller.writer.activities import MakeView
from controller.writer.endpoints import endpoints_for_nodes
from metalog.image.values import BrokerImage
from protocol.schema import MetadataRecord
from protocol.transport.client import Connection
from runtime.tasks import Supervisor

KNOCK_MS: Final = 1_000.0
KNOCKS_MAX: Final = 64
"""Limit of concurrent connection attempts."""

Knock = Callable[[str, int], Awaitable[None]]
"""Raises OSError if the connection fails."""


async def knock_at(host: str, port: int) -> None:
    """Connect and disconnect. Raises OSError if the connection fails."""
    (await Connection.connect(host, port, None, KNOCK_MS, negotiate=False)).abort()


class RollCall:
    """Activity that makes fencing due and appends nothing.

    Args:
        gone: called with the id of each broker whose process has ended.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        supervisor: Supervisor,
        view: MakeView,
        gone: Callable[[int], None],
        knock: Knock = knock_at,
    ) -> None:
        self.due_ms: float | None = None
        self._settings = settings
        self._supervisor = supervisor
        self._view = view
        self._gone = gone
        self._knock = knock
        self._task: asyncio.Task[None] | None = None

    def begin(self, now_ms: float) -> None:
        self.end()
        brokers = [b for b in self._view().image.cluster.brokers.values() if not b.fenced]
        if self._settings.connection_loss_fence_ms and len(brokers) > 1:
            self._task = self._supervisor.spawn("roll call", self._call(brokers), fatal=False)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def act(self, now_ms: float, view: MakeView) -> Sequence[MetadataRecord]:
        return ()

    def appended(self, records: Sequence[MetadataRecord], now_ms: float) -> None:
        return

    async def _call(self, brokers: Iterable[BrokerImage]) -> None:
        at_a_time = asyncio.Semaphore(KNOCKS_MAX)
        opened = False
        refused: list[int] = []

        async def call(broker: BrokerImage) -> None:
            nonlocal opened
            async with at_a_time:
                is_there = await self._is_there(broker)
            if is_there is False:
                refused.append(broker.id)
            opened = opened or is_there is True
            while opened and refused:
                self._gone(refused.pop())

        await asyncio.gather(*map(call, brokers))

    async def _is_there(self, broker: BrokerImage) -> bool | None:
        """Return whether the broker's process listens, None if that is unknown."""
        refusals = 0
        endpoints = endpoints_for_nodes(self._settings.config, broker)
        for endpoint in endpoints:
            try:
                await self._knock(endpoint.host, endpoint.port)
            except ConnectionRefusedError:
                refusals += 1
            except OSError:
                continue
            else:
                return True
        return False if endpoints and refusals == len(endpoints) else None
