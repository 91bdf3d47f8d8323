"""Registration of a controller process, repeated after its removal (KIP-1312)."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

from controller.writer.registration import ControllerRegistrar
from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE, MetadataImage
from metalog.loader import MetadataLoader
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from protocol.metadata import (
    FeatureLevelRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from runtime.clock import SystemClock

OWN, OTHER = b"o" * 16, b"x" * 16


class World:
    """A loader whose image the test changes, with a registrar and a fake active controller."""

    def __init__(self) -> None:
        version = FeatureLevelRecord(name="metadata.version", feature_level=33)
        self.image: MetadataImage = replay_all(EMPTY_IMAGE, [version])
        self.publishers: list[Any] = []
        self.asked = 0
        self.registrar = ControllerRegistrar(
            cast(MetadataLoader, self),
            ControllerRegistrationRequest(controller_id=1, incarnation_id=OWN),
            lambda: ("localhost", 1),
            clock=SystemClock(),
            rng=random.Random(1),
        )
        self.registrar._ask = self.ask  # type: ignore[method-assign]

    def add_publisher(self, publisher: Any) -> None:
        self.publishers.append(publisher)

    async def ask(self, host: str, port: int) -> ControllerRegistrationResponse:
        self.asked += 1
        self.add(RegisterControllerRecord(controller_id=1, incarnation_id=OWN))
        return ControllerRegistrationResponse()

    def add(self, record: Any) -> None:
        self.image = replay_all(self.image, [record])
        for publish in self.publishers:
            publish(None, self.image)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_registrar_registers_again_after_each_removal() -> None:
    """KIP-1312: a controller that still runs returns at once after UnregisterController."""
    world = World()
    task = asyncio.create_task(world.registrar.run())
    for count in (1, 2, 3):
        await turns()
        assert (world.asked, world.registrar.is_registered) == (count, True)
        world.add(UnregisterControllerRecord(controller_id=1))
    task.cancel()


async def test_registrar_leaves_another_process_of_its_id_alone() -> None:
    """Two processes with one id must not replace each other's registrations without end."""
    world = World()
    task = asyncio.create_task(world.registrar.run())
    await turns()
    world.add(RegisterControllerRecord(controller_id=1, incarnation_id=OTHER))
    await turns()
    assert world.asked == 1
    world.add(UnregisterControllerRecord(controller_id=1))
    await turns()
    assert world.asked == 2
    task.cancel()
