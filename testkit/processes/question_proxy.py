"""A proxy in front of brokers that detects a controller's requests for their logs (KIP-966).

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
from testkit.processes.link_proxy import LinkProxies, who
from testkit.processes.wire_record import Watcher

_STRANGER = b"some-other-software"
assert len(_STRANGER) == len(CONTROLLER_SOFTWARE_NAME)


class Stage(Enum):
    QUESTION = "question"
    ANSWER = "answer"


class Seen(NamedTuple):
    """A request or a response that has reached the proxy."""

    controller: int
    broker: int
    stage: Stage


class QuestionProxies(LinkProxies):
    """`add` forwards a port to a broker's listener. `seen` has what arrived, `passed` what was
    forwarded."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.passed: list[Seen] = []
        self._held: dict[tuple[int, Stage], asyncio.Event] = {}
        self._hidden: set[int] = set()
        self._asking: dict[asyncio.StreamWriter, int] = {}

    def hold(self, stage: Stage, brokers: Iterable[int]) -> None:
        """Hold this stage from now on; a message held longer than a controller waits is lost, and
        the controller repeats its request."""

        def work() -> None:
            for broker in brokers:
                self._held.setdefault((broker, stage), asyncio.Event())

        self.call(work)

    def release(self, stage: Stage, brokers: Iterable[int]) -> None:
        """Forward held messages, and hold no later ones."""

        def work() -> None:
            for broker in brokers:
                self._held.pop((broker, stage), asyncio.Event()).set()

        self.call(work)

    def hide(self, broker: int) -> None:
        """Hide the API of a broker from controllers that connect from now on: they detect other
        software."""
        self.call(lambda: self._hidden.add(broker))

    def show(self, broker: int) -> None:
        """Show the API again, and abort the connections of controllers, which must reconnect."""

        def work() -> None:
            self._hidden.discard(broker)
            for writer, to in self._asking.items():
                if to == broker:
                    writer.transport.abort()

        self.call(work)

    def reset(self) -> None:
        """Forget the messages seen and passed so far."""

        def work() -> None:
            self.seen.clear()
            self.passed.clear()

        self.call(work)

    async def pass_on(
        self,
        first: bytes,
        to: int,
        asked: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        told: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        watcher: Watcher,
    ) -> None:
        """Forward one connection, whose first request has been read."""
        if b"-recovery" not in first[14:64]:
            return await super().pass_on(first, to, asked, told, watcher)
        if to in self._hidden:
            first = first.replace(CONTROLLER_SOFTWARE_NAME.encode(), _STRANGER)
        (reader, writer), (back, upstream) = asked, told
        upstream.write(first)
        questions: set[bytes] = set()
        self._asking[writer] = to
        try:
            await asyncio.gather(
                self._questions(reader, upstream, who(first), to, questions),
                self._answers(back, writer, who(first), to, questions),
            )
        finally:
            del self._asking[writer]

    async def _questions(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        controller: int,
        to: int,
        questions: set[bytes],
    ) -> None:
        while True:
            frame = await _frame(reader)
            if int.from_bytes(frame[4:6], "big") == ApiKey.GET_REPLICA_LOG_INFO:
                questions.add(frame[8:12])
                await self._at(Seen(controller, to, Stage.QUESTION))
            writer.write(frame)

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        controller: int,
        to: int,
        questions: set[bytes],
    ) -> None:
        while True:
            frame = await _frame(reader)
            if frame[4:8] in questions:
                await self._at(Seen(controller, to, Stage.ANSWER), writer, frame)
            else:
                writer.write(frame)

    async def _at(
        self, point: Seen, writer: asyncio.StreamWriter | None = None, frame: bytes = b""
    ) -> None:
        self.seen.append(point)
        held = self._held.get((point.broker, point.stage))
        if held is not None:
            await held.wait()
        if writer is not None:
            writer.write(frame)
            await writer.drain()
        self.passed.append(point)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))
