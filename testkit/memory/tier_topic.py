"""`__remote_log_metadata` in memory, and journals over it, for the tests of a tier's drivers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping

from broker.tiering.journal import Journal
from broker.tiering.topic_link import LATEST, MetadataRead, MetadataTopic, ReadFrom
from protocol.errors import ApiError, ErrorCode
from protocol.ids import TopicId
from runtime.clock import Clock, SystemClock
from runtime.tasks import Supervisor
from storage.log.epochs import EpochEntry

LEADER = 1
READ_WAIT_S = 0.01
CATCH_UP_WAIT_S = 0.001


class MemoryTopic:
    """The topic that all links of a test share. `exists` is the initial state; creation sets it."""

    def __init__(self, partitions: int = 1, *, exists: bool = True) -> None:
        self.topic_id = TopicId(bytes(15) + b"\1")
        self.logs: list[list[bytes]] = [[] for _ in range(partitions)]
        self.epochs: list[list[int]] = [[] for _ in range(partitions)]
        """The leader epoch of each record."""
        self.epoch = 0
        self.starts = [0] * partitions
        self.leaders = [LEADER] * partitions
        self.exists = exists
        self.created = 0
        self._grown = asyncio.Event()

    def add(self, number: int, value: bytes) -> int:
        """Add a record from any source. Returns: its offset."""
        self.logs[number].append(value)
        self.epochs[number].append(self.epoch)
        self.wake()
        return len(self.logs[number]) - 1

    def wake(self) -> None:
        """Wake the reads that wait for records."""
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    async def grown(self) -> None:
        await self._grown.wait()

    def lose_end(self, number: int, end_offset: int) -> list[bytes]:
        """Remove the end of a partition, as a power cut of unflushed records, and begin a new
        leader epoch.

        Returns: the removed records.
        """
        lost = self.logs[number][end_offset:]
        del self.logs[number][end_offset:], self.epochs[number][end_offset:]
        self.epoch += 1
        self.wake()
        return lost

    def made_anew(self) -> None:
        """Delete the topic and create it again, with another id."""
        self.topic_id = TopicId(bytes(15) + bytes([self.topic_id[15] + 1]))
        self.logs = [[] for _ in self.logs]
        self.epochs = [[] for _ in self.logs]
        self.wake()

    async def create(self) -> None:
        self.created += 1
        self.exists = True


class MemoryLink:
    """One broker's link to the topic, a `MetadataLink`."""

    def __init__(self, topic: MemoryTopic) -> None:
        self.shared = topic
        self.down = False
        """If set, every call fails."""
        self.answers_lost = 0
        """Number of records that are written without a response."""
        self.refusals: list[ErrorCode] = []
        """Errors for the next writes."""
        self.visible: int | None = None
        """Number of records of each partition that reads see; None: all."""
        self.reads = 0
        self.compares_epochs = True
        """True if leaders compare the epoch of a read with their own log."""

    def topic(self) -> MetadataTopic | None:
        if not self.shared.exists:
            return None
        return MetadataTopic(self.shared.topic_id, len(self.shared.logs))

    def leader(self, number: int) -> int:
        return self.shared.leaders[number]

    async def append(self, number: int, value: bytes, timestamp_ms: int) -> int:
        self._check()
        await asyncio.sleep(0)
        if self.refusals:
            raise ApiError(self.refusals.pop(0), None)
        offset = self.shared.add(number, value)
        if self.answers_lost:
            self.answers_lost -= 1
            raise ConnectionResetError("after the write")
        return offset

    async def read(
        self, leader: int, offsets: Mapping[int, ReadFrom], *, catching_up: bool = False
    ) -> list[MetadataRead]:
        self._check()
        found = [self._look(number, begin) for number, begin in offsets.items()]
        if not any(one.records or one.error or one.diverges for one in found):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_WAIT_S if catching_up else READ_WAIT_S):
                    await self.shared.grown()
            found = [self._look(number, begin) for number, begin in offsets.items()]
        self.reads += 1
        await asyncio.sleep(0)
        return found

    def _look(self, number: int, begin: ReadFrom) -> MetadataRead:
        offset, epoch = begin
        epochs = self.shared.epochs[number]
        if self.compares_epochs and epoch >= 0 and epochs[offset - 1 : offset] != [epoch]:
            return MetadataRead(number, offset, [], offset, diverges=True)
        if not self.shared.starts[number] <= offset <= len(epochs):
            return MetadataRead(number, offset, [], offset, ErrorCode.OFFSET_OUT_OF_RANGE)
        log: list[bytes | None] = [*self.shared.logs[number][: self.visible]]
        records = list(enumerate(log))[offset:]
        entries = [EpochEntry(epochs[at], at) for at, _ in records]
        return MetadataRead(number, offset, records, max(offset, len(log)), epochs=entries)

    async def bound(self, number: int, timestamp: int) -> int:
        self._check()
        await asyncio.sleep(0)
        if timestamp == LATEST:
            return len(self.shared.logs[number])
        return self.shared.starts[number]

    def published(self) -> None:
        self.shared.wake()

    async def close(self) -> None:
        return

    def _check(self) -> None:
        if self.down:
            raise ConnectionRefusedError("down")


def memory_journal(
    topic: MemoryTopic,
    supervisor: Supervisor,
    *,
    link: MemoryLink | None = None,
    clock: Clock | None = None,
    consume_wait_ms: int = 60_000,
) -> Journal:
    """Return a journal of one broker over a topic in memory. Must be called inside a
    running loop."""
    return Journal(
        link or MemoryLink(topic),
        create_topic=topic.create,
        consume_wait_ms=consume_wait_ms,
        supervisor=supervisor,
        clock=clock or SystemClock(),
        rng=random.Random(1),
    )
