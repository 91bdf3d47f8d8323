"""F33: the faulty object store: the effect of each fault, and their replay from a seed."""

from __future__ import annotations

import random

import pytest

from storage.objects import (
    FaultyObjects,
    MemoryObjects,
    ObjectCorrupt,
    ObjectNotFound,
    ObjectRetriable,
    Weather,
)
from storage.objects.port import listed


def store(weather: Weather, seed: int = 1) -> FaultyObjects:
    backing = MemoryObjects()
    backing.replace("a", b"0123456789")
    return FaultyObjects(backing, random.Random(seed), weather)


@pytest.mark.parametrize("weather", [Weather(down=True), Weather(error=1.0)])
async def test_nothing_happens_before_an_error(weather: Weather) -> None:
    objects = store(weather)
    with pytest.raises(ObjectRetriable):
        await objects.put("b", b"x")
    with pytest.raises(ObjectRetriable):
        await objects.delete(["a"])
    with pytest.raises(ObjectRetriable):
        await listed(objects, "")
    assert await listed(objects.backing, "") == [await objects.backing.head("a")]


async def test_an_error_after_success_has_done_its_work() -> None:
    objects = store(Weather(error_after_success=1.0))
    with pytest.raises(ObjectRetriable):
        await objects.put("b", b"x")
    assert await objects.backing.get("b", 0, 1) == b"x"
    with pytest.raises(ObjectRetriable):
        await objects.delete(["a"])
    with pytest.raises(ObjectNotFound):
        await objects.backing.head("a")


async def test_a_short_answer_is_never_data() -> None:
    with pytest.raises(ObjectCorrupt):
        await store(Weather(short=1.0)).get("a", 0, 10)


async def test_one_bit_flips() -> None:
    data = await store(Weather(flipped=1.0)).get("a", 0, 10)
    different = [a ^ b for a, b in zip(data, b"0123456789", strict=True) if a != b]
    assert len(different) == 1
    assert different[0].bit_count() == 1


async def test_a_lost_object_is_gone_after_a_put_that_worked() -> None:
    objects = store(Weather(lost=1.0))
    await objects.put("b", b"x")
    with pytest.raises(ObjectNotFound):
        await objects.head("b")


async def test_a_hanging_call_ends_with_an_error() -> None:
    with pytest.raises(ObjectRetriable, match="in time"):
        await store(Weather(hang=1.0, hang_ms=1.0)).head("a")


async def test_one_seed_fails_in_one_way() -> None:
    async def outcomes(seed: int) -> list[bool]:
        objects = store(Weather(error=0.5, latency_ms=(0.0, 0.01)), seed)
        found = []
        for _ in range(40):
            try:
                await objects.head("a")
                found.append(True)
            except ObjectRetriable:
                found.append(False)
        return found

    assert await outcomes(3) == await outcomes(3) != await outcomes(4)
