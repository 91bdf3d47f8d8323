"""A rule of proxies in front of brokers: holds a controller's requests for their logs (KIP-966).

Requests (GetReplicaLogInfo) and their responses can be held, so that a test acts at one point of an
unclean recovery. All other traffic passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from protocol.api_keys import ApiKey
from protocol.transport.own_names import CONTROLLER_SOFTWARE_NAME
from testkit.processes.wire_proxy import Forward, WireConnection, WireProxies, WireRule

_OTHER_SOFTWARE = b"some-other-software"
assert len(_OTHER_SOFTWARE) == len(CONTROLLER_SOFTWARE_NAME)


class Stage(Enum):
    REQUEST = "request"
    RESPONSE = "response"


class Seen(NamedTuple):
    """A request or a response that has reached the proxy."""

    controller: int
    broker: int
    stage: Stage


class _LogInfoRule(WireRule):
    """State of all connections on which a controller requests logs; used in the proxies' thread."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.passed: list[Seen] = []
        self.held: dict[tuple[int, Stage], asyncio.Event] = {}
        self.hidden: set[int] = set()
        self.pending: dict[WireConnection, set[bytes]] = {}

    def closed(self, connection: WireConnection) -> None:
        self.pending.pop(connection, None)

    async def request(self, connection: WireConnection, frame: bytes, forward: Forward) -> None:
        if b"-recovery" not in connection.client_id:
            return await forward(frame)
        if connection not in self.pending:
            self.pending[connection] = set()
            if connection.node in self.hidden:
                frame = frame.replace(CONTROLLER_SOFTWARE_NAME.encode(), _OTHER_SOFTWARE)
        if int.from_bytes(frame[4:6], "big", signed=True) != ApiKey.GET_REPLICA_LOG_INFO:
            return await forward(frame)
        self.pending[connection].add(frame[8:12])
        await self._at(connection, Stage.REQUEST, frame, forward)

    async def response(self, connection: WireConnection, frame: bytes, forward: Forward) -> None:
        if frame[4:8] in self.pending.get(connection, ()):
            await self._at(connection, Stage.RESPONSE, frame, forward)
        else:
            await forward(frame)

    async def _at(
        self, connection: WireConnection, stage: Stage, frame: bytes, forward: Forward
    ) -> None:
        point = Seen(connection.source, connection.node, stage)
        self.seen.append(point)
        held = self.held.get((point.broker, stage))
        if held is not None:
            await held.wait()
        await forward(frame)
        self.passed.append(point)


class LogInfoProxies(WireProxies):
    """`add` forwards a port to a broker's listener. `seen` has the requests and responses that
    arrived, `passed` those that were forwarded."""

    def __init__(self) -> None:
        self._log_info = _LogInfoRule()
        super().__init__(self._log_info)
        self.seen = self._log_info.seen
        self.passed = self._log_info.passed

    def hold(self, stage: Stage, brokers: Iterable[int]) -> None:
        """Hold this stage from now on; a message held longer than a controller waits is lost, and
        the controller repeats its request."""

        def work() -> None:
            for broker in brokers:
                self._log_info.held.setdefault((broker, stage), asyncio.Event())

        self.call(work)

    def release(self, stage: Stage, brokers: Iterable[int]) -> None:
        """Forward held messages, and hold no later ones."""

        def work() -> None:
            for broker in brokers:
                self._log_info.held.pop((broker, stage), asyncio.Event()).set()

        self.call(work)

    def hide(self, broker: int) -> None:
        """Hide the API of a broker from controllers that connect from now on: they detect other
        software."""
        self.call(lambda: self._log_info.hidden.add(broker))

    def show(self, broker: int) -> None:
        """Show the API again, and abort the connections of controllers, which must reconnect."""

        def work() -> None:
            self._log_info.hidden.discard(broker)
            for connection in self._log_info.pending:
                if connection.node == broker:
                    connection.abort()

        self.call(work)

    def reset(self) -> None:
        """Forget the messages seen and passed so far."""

        def work() -> None:
            self.seen.clear()
            self.passed.clear()

        self.call(work)
