"""A proxy before brokers that knows what a controller asks of their logs (KIP-966).

Questions (GetReplicaLogInfo) and their answers can be held, so that a test does something at one
point of an unclean recovery. Everything else passes.
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
    """A question or an answer that has come to the proxy."""

    controller: int
    broker: int
    stage: Stage


class QuestionProxies(LinkProxies):
    """`add` forwards a port to a broker's listener. `seen` has what came, `passed` what went on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.passed: list[Seen] = []
        self._held: dict[tuple[int, Stage], asyncio.Event] = {}
        self._hidden: set[int] = set()
        self._asking: dict[asyncio.StreamWriter, int] = {}

    def hold(self, stage: Stage, brokers: Iterable[int]) -> None:
        """From now on; what is held longer than a controller waits is lost, and asked again."""

        def work() -> None:
            for broker in brokers:
                self._held.setdefault((broker, stage), asyncio.Event())

        self.call(work)

    def release(self, stage: Stage, brokers: Iterable[int]) -> None:
        """What is held goes on, and what comes later is not held."""

        def work() -> None:
            for broker in brokers:
                self._held.pop((broker, stage), asyncio.Event()).set()

        self.call(work)

    def hide(self, broker: int) -> None:
        """Controllers that connect from now on find a broker without the API: it takes them for
        other software."""
        self.call(lambda: self._hidden.add(broker))

    def show(self, broker: int) -> None:
        """It has the API again: who found it without has to connect anew."""

        def work() -> None:
            self._hidden.discard(broker)
            for writer, to in self._asking.items():
                if to == broker:
                    writer.transport.abort()

        self.call(work)

    def reset(self) -> None:
        """Forget what was seen."""

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
        """One connection, whose first request has been read."""
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
