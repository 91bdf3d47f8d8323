"""Planned moves of all leaderships at once, and their delay for producers (P24, KIP-951).

All times are virtual and a node's work takes none: the time of a send is the time that nodes wait.
"""

from __future__ import annotations

import asyncio

import pytest

from bench.leader_moves import Mover
from client.cluster_client import ClusterClient
from protocol.batch.records import Record, build_batch
from simulation.world.cluster import CLIENT_PORT
from simulation.world.links import Link
from tests.sim.five_nodes import BROKERS, NODES, Story, World

SEND_MS_MAX = 20.0
PERIOD_S = 1 / 300
SENDS = 100
PARTITIONS = 2 * (NODES + BROKERS)
MOVES = 4


class Sends:
    """A producer that sends at a fixed rate to each partition in turn; `took_ms` has each send's
    time."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._batch = build_batch([Record(0, 0, None, b"x" * 1000)])
        self.took_ms: list[float] = []

    async def _one(self, partition: int) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await self._client.produce("t", partition, self._batch)
        self.took_ms.append((loop.time() - begun_s) * 1000)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(SENDS):
                group.create_task(self._one(number % PARTITIONS))
                await asyncio.sleep(PERIOD_S)


def moved_under_load(late_ms: float, took_ms: list[float]) -> Story:
    """Move all leaderships repeatedly; brokers' images arrive up to `late_ms` apart."""

    async def story(world: World) -> float:
        machines, network = world.cluster.machines, world.cluster.network
        source = world.active().host
        for number, target in enumerate(machines[NODES:], start=1):
            link = network.link(source, target.host)
            link.delay_ms_min = link.delay_ms_max = late_ms / number
        addresses = [(machine.host, CLIENT_PORT) for machine in machines]
        producer = await ClusterClient.connect(addresses, "producer")
        admin = await ClusterClient.connect(addresses, "mover")
        moved = 0
        try:
            await producer.metadata(["t"])
            for _ in range(MOVES):
                sends = Sends(producer)
                sending = asyncio.create_task(sends.run())
                await asyncio.sleep(SENDS * PERIOD_S / 4)
                moved += await Mover(admin, "t").move()
                await sending
                took_ms.extend(sends.took_ms)
        finally:
            await producer.close()
            await admin.close()
        return float(moved)

    return story


@pytest.mark.parametrize("seed", range(2))
def test_a_planned_move_costs_no_send_20_ms(seed: int) -> None:
    took_ms: list[float] = []
    world = World(seed, Link())
    moved = world.run(moved_under_load(4.0, took_ms))
    assert moved >= MOVES * PARTITIONS / 2
    assert len(took_ms) == MOVES * SENDS
    assert max(took_ms) < SEND_MS_MAX
    assert world.fenced == {}
