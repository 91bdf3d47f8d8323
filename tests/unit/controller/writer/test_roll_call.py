"""The roll call of a controller that takes over: brokers found unreachable (P15, F1)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from immutables import Map

from controller.writer import roll_call
from controller.writer.roll_call import RollCall
from metalog.image.values import BrokerImage, Endpoint
from runtime.config import NodeConfig
from runtime.tasks import Supervisor
from testkit.memory.controller import NODE_PROPERTIES

REFUSES, OPENS, HANGS = "refuses", "opens", "hangs"


def broker(broker_id: int, *, fenced: bool = False, listeners: int = 1) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=1,
        incarnation_id=bytes(16),
        endpoints=tuple(
            Endpoint(name, f"host-{broker_id}", 9092 + at, 0)
            for at, name in enumerate(["PLAINTEXT", "OTHER"][:listeners])
        ),
        features=Map(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(),
    )


class World:
    """Behaviour of each broker, by id or by (id, port)."""

    def __init__(self, *brokers: BrokerImage, fence_ms: int = 50, **does: str) -> None:
        self.gone: list[int] = []
        self.knocked: list[str] = []
        self.does = does
        image = SimpleNamespace(cluster=SimpleNamespace(brokers={b.id: b for b in brokers}))
        settings: Any = SimpleNamespace(
            connection_loss_fence_ms=fence_ms, config=NodeConfig.parse(NODE_PROPERTIES)
        )
        self.call = RollCall(
            settings,
            supervisor=Supervisor(),
            view=lambda: SimpleNamespace(image=image),  # type: ignore[return-value,arg-type]
            gone=self.gone.append,
            knock=self._knock,
        )

    async def _knock(self, host: str, port: int) -> None:
        who = f"b{host.removeprefix('host-')}"
        self.knocked.append(who)
        what = self.does.get(f"{who}_{port}", self.does.get(who, OPENS))
        await asyncio.sleep(0)
        if what == REFUSES:
            raise ConnectionRefusedError
        if what == HANGS:
            raise TimeoutError

    async def hold(self) -> list[int]:
        self.call.begin(0.0)
        if self.call._task is not None:
            await self.call._task
        return sorted(self.gone)


async def test_roll_call_finds_only_brokers_that_refuse_connections() -> None:
    world = World(broker(1), broker(2), broker(3), b1=REFUSES, b3=HANGS)
    assert await world.hold() == [1]


async def test_roll_call_skips_fenced_brokers() -> None:
    world = World(broker(1), broker(2), broker(3, fenced=True), b3=REFUSES)
    assert await world.hold() == []
    assert sorted(world.knocked) == ["b1", "b2"]


async def test_roll_call_without_any_success_reports_no_broker() -> None:
    world = World(broker(1), broker(2), b1=REFUSES, b2=REFUSES)
    assert await world.hold() == []
    alone = World(broker(1), b1=REFUSES)
    assert await alone.hold() == [] and not alone.knocked


async def test_one_of_several_listeners_that_opens_is_enough() -> None:
    both = [broker(1, listeners=2), broker(2)]
    assert await World(*both, b1=REFUSES, b1_9093=OPENS).hold() == []
    assert await World(*both, b1=REFUSES, b1_9093=HANGS).hold() == []
    assert await World(*both, b1=REFUSES).hold() == [1]


async def test_roll_call_without_connection_loss_fencing_is_off() -> None:
    world = World(broker(1), broker(2), fence_ms=0, b1=REFUSES)
    assert await world.hold() == [] and not world.knocked


async def test_roll_call_of_resigned_controller_stops() -> None:
    world = World(broker(1), broker(2), b1=REFUSES)
    world.call.begin(0.0)
    world.call.end()
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.gone == [] and world.call.act(0.0, world.call._view) == ()


async def test_roll_call_limits_concurrent_connections() -> None:
    world = World(*(broker(n) for n in range(1, 1001)), b7=REFUSES)
    most = 0
    inner = world._knock

    async def counted(host: str, port: int) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        try:
            await inner(host, port)
        finally:
            now -= 1

    now = 0
    world.call._knock = counted
    assert await world.hold() == [7]
    assert most == roll_call.KNOCKS_MAX
