"""The object store of a simulated cluster: one bucket, which survives every crash.

Each node has a path of its own to the store. A fault puts a `StoreTrouble` on the path of one node
or of all, and removes it. Overlapping troubles have the worst effect of each kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from protocol.schema import Buffer
from simulation.chance import stream
from simulation.world.life import CURRENT_LIFE, Life
from simulation.world.network import CURRENT_HOST
from simulation.world.trace import Trace
from storage.objects import (
    FaultyObjects,
    MemoryObjects,
    ObjectError,
    ObjectInfo,
    Objects,
    StoreSettings,
    Weather,
)
from storage.objects.port import Source

PUT, GET, HEAD, DELETE = "put", "get", "head", "delete"


@dataclass(eq=False)
class StoreTrouble:
    """The effect of one fault on the paths to the store, and its counts.

    Args:
        weather: how the store behaves.
        host: the host whose path is affected, None: every host.
    """

    weather: Weather
    host: str | None = None
    calls: int = 0
    """Number of calls that began under the fault."""
    errors: int = 0
    """Number of these calls that failed."""


@dataclass(eq=False)
class CallStop:
    """One call of the store as a stopping point.

    Args:
        call: "put", "get", "head" or "delete"; "": any of them.
        after: the number of such calls, of all nodes, that pass first.
        answered: stop after the effect of the call, before its response.
        then: called with the host of the node at each of the following calls.
    """

    call: str
    after: int
    answered: bool
    then: Callable[[str], None]

    def reached(self, call: str, host: str, *, answered: bool) -> None:
        """Handle a node that is at this point of a call."""
        if answered is not self.answered or self.call not in ("", call):
            return
        if self.after > 0:
            self.after -= 1
            return
        self.then(host)


class Touch(NamedTuple):
    """A completed access of a node to an object, whatever response the node gets."""

    life: Life | None
    what: str
    key: str


class SimStore:
    """The store. It calls `observer` with every touch."""

    def __init__(self, trace: Trace, seed: int) -> None:
        self.bucket = MemoryObjects()
        self.observer: Callable[[Touch], None] = lambda touch: None
        self.stops: list[CallStop] = []
        self.hangs_until_s = 0.0
        """Loop time by which every hanging call of removed troubles has ended; a call that began
        under a trouble continues after it."""
        self._trace = trace
        self._seed = seed
        self._troubles: list[StoreTrouble] = []
        self._ways: dict[str, _Way] = {}
        self._opened: dict[str, int] = {}

    def open(self, settings: StoreSettings) -> Objects:
        """Return the path of the node that is about to start."""
        host = CURRENT_HOST.get()
        number = self._opened[host] = self._opened.get(host, 0) + 1
        faulty = FaultyObjects(_WatchedBucket(self), stream(self._seed, "store", host, number))
        way = self._ways[host] = _Way(faulty, lambda: self.on(host), partial(self._reached, host))
        self._settle()
        return way

    def _reached(self, host: str, call: str, *, answered: bool) -> None:
        for stop in list(self.stops):
            stop.reached(call, host, answered=answered)

    def on(self, host: str) -> list[StoreTrouble]:
        """Return the troubles on the path of a host."""
        return [one for one in self._troubles if one.host in (None, host)]

    def lay(self, trouble: StoreTrouble) -> None:
        self._troubles.append(trouble)
        self._settle()

    def lift(self, trouble: StoreTrouble) -> None:
        self._troubles.remove(trouble)
        if trouble.weather.hang:
            ends_s = asyncio.get_running_loop().time() + trouble.weather.hang_ms / 1000
            self.hangs_until_s = max(self.hangs_until_s, ends_s)
        self._settle()

    def touched(self, what: str, key: str) -> None:
        """Record an access to the bucket."""
        life = CURRENT_LIFE.get()
        self._trace.add(f"{life} {what} {key}")
        self.observer(Touch(life, what, key))

    def _settle(self) -> None:
        for host, way in self._ways.items():
            way.faulty.weather = worst([one.weather for one in self.on(host)])


def worst(weathers: Sequence[Weather]) -> Weather:
    """Return the worst of each effect."""
    if not weathers:
        return Weather()
    return Weather(
        down=any(one.down for one in weathers),
        error=max(one.error for one in weathers),
        error_after_success=max(one.error_after_success for one in weathers),
        short=max(one.short for one in weathers),
        flipped=max(one.flipped for one in weathers),
        hang=max(one.hang for one in weathers),
        latency_ms=max(one.latency_ms for one in weathers),
        hang_ms=max([one.hang_ms for one in weathers if one.hang], default=Weather().hang_ms),
    )


class _WatchedBucket:
    """The bucket; it reports every access to the store."""

    def __init__(self, store: SimStore) -> None:
        self._store = store
        self._bucket = store.bucket

    async def put(self, key: str, source: Source) -> None:
        await self._bucket.put(key, source)
        self._store.touched(PUT, key)

    async def get(self, key: str, start: int, size_bytes: int) -> Buffer:
        data = await self._bucket.get(key, start, size_bytes)
        self._store.touched(GET, key)
        return data

    async def head(self, key: str) -> ObjectInfo:
        return await self._bucket.head(key)

    def pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        return self._bucket.pages(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        there = set(self._bucket.keys)
        await self._bucket.delete(keys)
        for key in keys:
            if key in there:
                self._store.touched(DELETE, key)

    async def close(self) -> None:
        await self._bucket.close()


class _Way:
    """A node's path to the store, which counts calls and errors for the troubles on it."""

    def __init__(
        self,
        faulty: FaultyObjects,
        troubles: Callable[[], list[StoreTrouble]],
        reached: Callable[..., None],
    ) -> None:
        self.faulty = faulty
        self._troubles = troubles
        self._reached = reached

    async def put(self, key: str, source: Source) -> None:
        with _Counted(self._troubles()):
            self._reached(PUT, answered=False)
            await self.faulty.put(key, source)
            self._reached(PUT, answered=True)

    async def get(self, key: str, start: int, size_bytes: int) -> Buffer:
        with _Counted(self._troubles()):
            self._reached(GET, answered=False)
            data = await self.faulty.get(key, start, size_bytes)
            self._reached(GET, answered=True)
            return data

    async def head(self, key: str) -> ObjectInfo:
        with _Counted(self._troubles()):
            self._reached(HEAD, answered=False)
            found = await self.faulty.head(key)
            self._reached(HEAD, answered=True)
            return found

    async def pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        with _Counted(self._troubles()):
            async for page in self.faulty.pages(prefix):
                yield page

    async def delete(self, keys: Sequence[str]) -> None:
        with _Counted(self._troubles()):
            self._reached(DELETE, answered=False)
            await self.faulty.delete(keys)
            self._reached(DELETE, answered=True)

    async def close(self) -> None:
        await self.faulty.close()


class _Counted:
    """One call under these troubles."""

    def __init__(self, troubles: Sequence[StoreTrouble]) -> None:
        self._troubles = troubles

    def __enter__(self) -> None:
        for one in self._troubles:
            one.calls += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, ObjectError):
            for one in self._troubles:
                one.errors += 1
