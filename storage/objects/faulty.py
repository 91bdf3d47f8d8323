"""Shell: Fault-injecting overlay of an object store, for reliability F33.

The fault of each call is drawn from the given generator, so a seed replays it. The faults are those
of real stores and networks: no answer, an error before or after the operation, a slow answer, a
truncated answer, a flipped bit, an object that is lost later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from protocol.schema import Buffer
from storage.objects.port import (
    ObjectCorrupt,
    ObjectInfo,
    ObjectRetriable,
    Objects,
    Source,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Fault probabilities of a store, as fractions of the calls, from 0 to 1.

    A call that hangs takes `hang_ms` and ends with an error, like a client-side timeout.
    """

    down: bool = False
    error: float = 0.0
    error_after_success: float = 0.0
    short: float = 0.0
    flipped: float = 0.0
    lost: float = 0.0
    """Fraction of the puts after which the object is gone at once."""
    hang: float = 0.0
    latency_ms: tuple[float, float] = (0.0, 0.0)
    hang_ms: float = 30_000.0


FAIR = Weather()


class FaultyObjects:
    """Objects over `backing`; `weather` may be changed at any time."""

    def __init__(self, backing: Objects, rng: random.Random, weather: Weather = FAIR) -> None:
        self.backing = backing
        self.weather = weather
        self._rng = rng

    async def put(self, key: str, source: Source) -> None:
        await self._before(key)
        await self.backing.put(key, source)
        if self._drawn(self.weather.lost):
            await self.backing.delete([key])
        self._after(key)

    async def get(self, key: str, start: int, size_bytes: int) -> Buffer:
        await self._before(key)
        data = await self.backing.get(key, start, size_bytes)
        self._after(key)
        if self._drawn(self.weather.short):
            # A store's client notices the wrong length, so the port promises this error.
            raise ObjectCorrupt(key, f"{self._rng.randrange(size_bytes)} bytes, not {size_bytes}")
        if self._drawn(self.weather.flipped):
            broken = bytearray(data)
            broken[self._rng.randrange(len(broken))] ^= 1 << self._rng.randrange(8)
            return bytes(broken)
        return data

    async def head(self, key: str) -> ObjectInfo:
        await self._before(key)
        found = await self.backing.head(key)
        self._after(key)
        return found

    async def pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        await self._before(prefix)
        async for page in self.backing.pages(prefix):
            yield page
            await self._before(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        name = keys[0] if keys else ""
        await self._before(name)
        if self._drawn(self.weather.error) and len(keys) > 1:
            # A bulk delete may do part of its work.
            await self.backing.delete(keys[: self._rng.randrange(len(keys))])
            raise ObjectRetriable(name, "some of the objects were not deleted")
        await self.backing.delete(keys)
        self._after(name)

    async def close(self) -> None:
        await self.backing.close()

    def _drawn(self, fraction: float) -> bool:
        return fraction > 0.0 and self._rng.random() < fraction

    async def _before(self, key: str) -> None:
        weather = self.weather
        low, high = weather.latency_ms
        if high > 0.0:
            await asyncio.sleep(self._rng.uniform(low, high) / 1000.0)
        if self._drawn(weather.hang):
            await asyncio.sleep(weather.hang_ms / 1000.0)
            raise ObjectRetriable(key, "no answer in time")
        if weather.down:
            raise ObjectRetriable(key, "the store cannot be reached")
        if self._drawn(weather.error):
            raise ObjectRetriable(key, "503 SlowDown")

    def _after(self, key: str) -> None:
        if self._drawn(self.weather.error_after_success):
            raise ObjectRetriable(key, "the connection was reset before the answer")
