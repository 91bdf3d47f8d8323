"""Three nodes with both roles and two brokers, on virtual time.

Connection-loss fencing is as `kraftbox up` configures it; other times are Kafka's (a session of
nine seconds).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from metalog.image.values import MetadataImage
from runtime import log
from simulation.clients.client import SimClient
from simulation.world import traps
from simulation.world.cluster import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    Machine,
    NodeLife,
    SimCluster,
)
from simulation.world.links import Link
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST, Network
from simulation.world.trace import Trace

NODES, BROKERS = 3, 2
SETTINGS = {
    "kraftbox.broker.connection.loss.fence.ms": "500",
    "controller.quorum.election.timeout.ms": "150",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}
AFTERMATH_S = 15.0

Story = Callable[["World"], Awaitable[float]]


class World:
    """The run of one seed. `fenced` has each broker fenced after all were up, with the time."""

    def __init__(self, seed: int, link: Link, *, fence_ms: int = 500) -> None:
        network = Network(random.Random(f"{seed}/network"))
        network.default_link = link
        self.loop = VirtualLoop(network)
        self.cluster = SimCluster(self.loop, Trace(self.loop.time), seed)
        voters = ",".join(f"{i}@node-{i}:{CONTROLLER_PORT}" for i in range(1, NODES + 1))
        for node_id in range(1, NODES + BROKERS + 1):
            settings = {**SETTINGS, "controller.quorum.voters": voters}
            settings["kraftbox.broker.connection.loss.fence.ms"] = str(fence_ms)
            if node_id > NODES:
                settings["process.roles"] = "broker"
                settings["listeners"] = f"PLAINTEXT://node-{node_id}:{CLIENT_PORT}"
            self.cluster.add(settings)
        self.fenced: dict[int, float] = {}
        self.image: MetadataImage | None = None
        self.victims: set[int] = set()
        self._watching = False

    def run(self, story: Story) -> float:
        """Run `story` and some time after it, to see which other brokers it costs. Returns: its
        result."""
        took: list[float] = []

        async def main() -> None:
            took.append(await self._main(story))

        try:
            with traps.locked(), log.captured():
                self.loop.run_world(main())
        finally:
            self.loop.close()
        assert not self.loop.failures
        return took[0]

    async def _main(self, story: Story) -> float:
        CURRENT_HOST.set("client")
        machines = self.cluster.machines
        lives = [machine.boot() for machine in machines]
        await asyncio.wait_for(asyncio.gather(*(life.ready for life in lives)), 60)
        client = SimClient([(machine.host, CLIENT_PORT) for machine in machines])
        await client.create_topic("t", 2 * len(machines), {}, NODES)
        await client.close()
        for machine in machines[:NODES]:
            self._follow(machine)
        await asyncio.sleep(5)
        self._watching = True
        took_s = await story(self)
        await asyncio.sleep(AFTERMATH_S)
        return took_s

    def _follow(self, machine: Machine) -> None:
        assert machine.life is not None and machine.life.node is not None
        assert machine.life.node.loader is not None
        machine.life.node.loader.add_publisher(lambda _, image: self._committed(image))

    def _committed(self, image: MetadataImage) -> None:
        if self.image is not None and image.provenance.offset <= self.image.provenance.offset:
            return
        self.image = image
        for broker in image.cluster.brokers.values() if self._watching else ():
            if broker.fenced:
                self.fenced.setdefault(broker.id, self.loop.time())

    @staticmethod
    def _controller(machine: Machine) -> Any:
        assert machine.life is not None and machine.life.node is not None
        assert machine.life.node.controller is not None
        return machine.life.node.controller.controller

    def active(self) -> Machine:
        """Return the machine of the active controller."""
        return next(m for m in self.cluster.machines[:NODES] if self._controller(m).is_active)

    def take(self, machine: Machine) -> NodeLife:
        """Return the life of a machine that is about to get a fault."""
        assert machine.life is not None
        self.victims.add(machine.node_id)
        return machine.life

    async def until_led_without_them(self) -> float:
        """Return the seconds until every partition has a leader outside the victims."""
        began_s = self.loop.time()
        while True:
            await asyncio.sleep(0.01)
            assert self.image is not None
            assert self.loop.time() < began_s + 60
            partitions = self.image.topics.by_name["t"].partitions.values()
            if all(p.leader >= 0 and p.leader not in self.victims for p in partitions):
                return self.loop.time() - began_s
