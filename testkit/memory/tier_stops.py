"""Calls that leave a broker as stopping points, at which a test injects an event.

State that a driver read before a call may be outdated when the call returns. A test runs an
operation once to record its calls, and then once for each call and each event that may happen
there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from broker.tiering.topic_link import MetadataRead, ReadFrom
from protocol.schema import Buffer
from storage.objects import ObjectInfo, Objects, Source
from testkit.memory.tier_topic import MemoryLink, MemoryTopic

Event = Callable[[], Awaitable[None]]


class Stops:
    """The calls of one operation by name, in order."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.happened = False
        self.open = True
        """True if calls are stopping points now."""
        self._number = -1
        self._event: Event | None = None

    def at(self, number: int, event: Event) -> None:
        """Let the event happen once, at the call of this number, counted from now on."""
        self.taken.clear()
        self._number, self._event = number, event

    def close(self) -> None:
        """End the operation: no event happens any more."""
        self.open, self._event = False, None

    async def __call__(self, name: str) -> None:
        """Stop at a call, before it begins or after its response."""
        if not self.open:
            return
        self.taken.append(name)
        if self._event is not None and len(self.taken) - 1 == self._number:
            event, self._event = self._event, None
            self.open = False  # calls of the event itself are not stopping points
            try:
                await event()
            finally:
                self.open = True
            self.happened = True


class StoppedObjects:
    """Access to the object store with a stopping point before each call and after it."""

    def __init__(self, backing: Objects, stops: Stops) -> None:
        self.backing = backing
        self._stops = stops

    async def put(self, key: str, source: Source) -> None:
        await self._stops(f"put {_kind(key)}")
        await self.backing.put(key, source)
        await self._stops(f"has put {_kind(key)}")

    async def get(self, key: str, start: int, size_bytes: int) -> Buffer:
        await self._stops(f"get {_kind(key)}")
        data = await self.backing.get(key, start, size_bytes)
        await self._stops(f"has got {_kind(key)}")
        return data

    async def head(self, key: str) -> ObjectInfo:
        await self._stops(f"head {_kind(key)}")
        found = await self.backing.head(key)
        await self._stops(f"has head of {_kind(key)}")
        return found

    async def pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        async for page in self.backing.pages(prefix):
            await self._stops("page")
            yield page

    async def delete(self, keys: Sequence[str]) -> None:
        await self._stops(f"delete {len(keys)}")
        await self.backing.delete(keys)
        await self._stops(f"has deleted {len(keys)}")

    async def close(self) -> None:
        await self.backing.close()


class StoppedLink(MemoryLink):
    """A link to the metadata topic with a stopping point before each call and after it."""

    def __init__(self, topic: MemoryTopic, stops: Stops) -> None:
        super().__init__(topic)
        self._stops = stops

    async def append(self, number: int, value: bytes, timestamp_ms: int) -> int:
        await self._stops("append")
        offset = await super().append(number, value, timestamp_ms)
        await self._stops("has appended")
        return offset

    async def read(
        self, leader: int, offsets: Mapping[int, ReadFrom], *, catching_up: bool = False
    ) -> list[MetadataRead]:
        await self._stops("read")
        found = await super().read(leader, offsets, catching_up=catching_up)
        await self._stops("has read")
        return found

    async def bound(self, number: int, timestamp: int) -> int:
        await self._stops("bound")
        offset = await super().bound(number, timestamp)
        await self._stops("has bound")
        return offset


def stop_at(owner: object, name: str, stops: Stops) -> None:
    """Make a coroutine method of one object a stopping point, before each call and after it."""
    call = getattr(owner, name)

    async def stopped(*arguments: object) -> object:
        await stops(name)
        found = await call(*arguments)
        await stops(f"has done {name}")
        return found

    setattr(owner, name, stopped)


def _kind(key: str) -> str:
    return key.rpartition(".")[2]
