"""Shell: A controller that takes over looks which brokers are still there.

It saw nobody's connection close. Live brokers speak up when they have found it, which may take one
that the old controller left hanging as long as the quorum's fetch timeout: only then is silence a
sign of death. A port that refuses is one at once. So with connection-loss fencing on it knocks at
every broker that is not fenced, and hangs up: of one that refuses it is known that its process has
ended (`Heartbeats.process_gone`), as of a voter that refuses the new epoch.

A broker that does speak is judged by that. And where no broker at all lets this controller in,
refusals are the network's, and say nothing.
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
"""At a time."""

Knock = Callable[[str, int], Awaitable[None]]
"""Raises OSError where nobody opens."""


async def knock_at(host: str, port: int) -> None:
    """Connects, and hangs up."""
    (await Connection.connect(host, port, None, KNOCK_MS, negotiate=False)).abort()


class RollCall:
    """An activity that appends nothing: what it finds out makes fencing due. `gone` is told of each
    broker whose process has ended."""

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
        """Whether its process listens, None where that cannot be said."""
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
