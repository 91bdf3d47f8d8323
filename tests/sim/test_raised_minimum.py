"""A raised min ISR that reaches the controller before the leader, while the ISR shrinks.

From then on the controller counts the leaving replica as eligible (KIP-966): the ISR is below min
ISR, so the high watermark must not move. If the leader advanced it by the lower min ISR that it
still has, records that it commits alone would be lost with its disk. All times are virtual.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from metalog.image.values import PartitionImage
from protocol.errors import ApiError
from runtime import log
from simulation.clients.client import SimClient, Unknown
from simulation.world import traps
from simulation.world.cluster import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    EPOCH_MS,
    End,
    Machine,
    SimCluster,
)
from simulation.world.links import Link
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST, Network
from simulation.world.trace import Trace

SETTINGS = {
    "kraftbox.broker.connection.loss.fence.ms": "100",
    "replica.lag.time.max.ms": "1500",
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.voters": f"1@node-1:{CONTROLLER_PORT}",
}
CONTROLLER = {"process.roles": "controller", "listeners": f"CONTROLLER://node-1:{CONTROLLER_PORT}"}


class World:
    """One controller, three brokers, one partition of three replicas."""

    def __init__(self) -> None:
        network = Network(random.Random("raised minimum"))
        network.default_link = Link()
        self.loop = VirtualLoop(network)
        self.cluster = SimCluster(self.loop, Trace(self.loop.time), 1)
        self.cluster.add({**SETTINGS, **CONTROLLER})
        for node_id in (2, 3, 4):
            own = {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://node-{node_id}:{CLIENT_PORT}",
            }
            self.cluster.add({**SETTINGS, **own})
        self.acked: set[bytes] = set()

    @staticmethod
    def node(machine: Machine) -> Any:
        assert machine.life is not None and machine.life.node is not None
        return machine.life.node

    def partition(self) -> PartitionImage:
        """Return the partition as the controller has committed it."""
        controller = self.node(self.cluster.machines[0]).controller.controller
        found: PartitionImage = controller.committed_image.topics.by_name["t"].partitions[0]
        return found

    async def until(self, holds: Any) -> None:
        for _ in range(2000):
            if holds():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(self.partition())

    async def send(self, client: SimClient, value: bytes) -> None:
        try:
            await client.produce("t", 0, [value], now_ms=EPOCH_MS)
        except (Unknown, ApiError):
            return
        self.acked.add(value)

    async def main(self) -> None:
        CURRENT_HOST.set("client")
        machines = self.cluster.machines
        lives = [machine.boot() for machine in machines]
        await asyncio.wait_for(asyncio.gather(*(life.ready for life in lives)), 60)
        client = SimClient([(machine.host, CLIENT_PORT) for machine in machines[1:]])
        await client.create_topic("t", 1, {"min.insync.replicas": "1"}, 3)
        await self.until(lambda: self.partition().leader > 0)
        await asyncio.sleep(1)
        await self.send(client, b"before")
        assert self.acked
        leader = machines[self.partition().leader - 1]
        followers = [machine for machine in machines[1:] if machine is not leader]

        late: list[Any] = []
        self.node(leader).loader.handle_commit = late.append
        await client.set_config("t", "min.insync.replicas", "2")
        for machine in followers:
            machine.pause(machine.life)  # type: ignore[arg-type]
        # The first reaches the waiting fetches; the second never reaches a follower.
        sent = [asyncio.ensure_future(self.send(client, b"on its way"))]
        await asyncio.sleep(0.1)
        sent.append(asyncio.ensure_future(self.send(client, b"alone")))
        replica = self.node(leader).broker.replicas.get("t", 0)
        await self.until(lambda: replica.isr == {leader.node_id})
        assert len(self.partition().elr) == 2
        assert late and replica.min_isr == 1
        await asyncio.gather(*sent)

        assert leader.life is not None
        leader.end(leader.life, End.POWER_CUT)
        for machine in followers:
            machine.resume(machine.life)  # type: ignore[arg-type]
        await self.until(lambda: self.partition().leader not in (-1, leader.node_id))
        await asyncio.sleep(1)
        await client.topics()
        begin, end = await client.bounds("t", 0)
        found = {value for _, value in await client.read("t", 0, begin, end)}
        assert self.acked <= found, f"P7: acknowledged and lost: {self.acked - found}"
        await client.close()


def test_nothing_is_acknowledged_that_the_eligible_replicas_lack() -> None:
    world = World()
    try:
        with traps.locked(), log.captured():
            world.loop.run_world(world.main())
    finally:
        world.loop.close()
    assert not world.loop.failures
