"""Three controllers and two brokers with the node's own code in virtual time, under faults.

Topics are created all the time while controllers lose power, are killed, paused, cut off. In the
end every successful creation is in every node's image, no refused one is, and all images are equal.
`python -m tests.sim.test_quorum_cluster FIRST LAST` runs more seeds.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.transport.client import Connection
from runtime import log
from simulation.world import traps
from simulation.world.cluster import CLIENT_PORT, CONTROLLER_PORT, End, Machine, SimCluster
from simulation.world.invariants import require
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST, Network
from simulation.world.trace import Trace, first_difference

pytestmark = pytest.mark.sim

CONTROLLERS, BROKERS = 3, 2
ROUNDS = 3
ROOT = Path(__file__).resolve().parents[2]


class Quorum:
    """The run of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{seed}/quorum")
        self.loop = VirtualLoop(Network(random.Random(f"{seed}/network")))
        self.trace = Trace(self.loop.time)
        self.cluster = SimCluster(self.loop, self.trace, seed)
        voters = ",".join(f"{i}@node-{i}:{CONTROLLER_PORT}" for i in range(1, CONTROLLERS + 1))
        for node_id in range(1, CONTROLLERS + BROKERS + 1):
            controls = node_id <= CONTROLLERS
            name, port = ("CONTROLLER", CONTROLLER_PORT) if controls else ("PLAINTEXT", CLIENT_PORT)
            settings = {
                "process.roles": "controller" if controls else "broker",
                "listeners": f"{name}://node-{node_id}:{port}",
                "controller.quorum.voters": voters,
            }
            self.cluster.add(settings)
        self.succeeded: list[str] = []
        self.refused: list[str] = []

    @property
    def machines(self) -> list[Machine]:
        return self.cluster.machines

    @property
    def controllers(self) -> list[Machine]:
        return self.machines[:CONTROLLERS]

    def run(self, *, disguised: bool = False) -> Trace:
        """Run the story with access to the real world trapped, or as on another machine."""
        try:
            with traps.disguised() if disguised else traps.locked(), log.captured():
                self.loop.run_world(self.main())
            require(not self.loop.failures, f"unhandled: {self.loop.failures[:3]}")
        finally:
            self.loop.close()
        return self.trace

    async def main(self) -> None:
        CURRENT_HOST.set("client")
        lives = [machine.boot() for machine in self.machines]
        await asyncio.wait_for(asyncio.gather(*(life.ready for life in lives)), 60)
        load = asyncio.create_task(self.create_forever())
        for _ in range(ROUNDS):
            await asyncio.sleep(self.rng.uniform(0.2, 2))
            await self.trouble()
        self.heal()
        await asyncio.sleep(1)
        before = len(self.succeeded)
        await self.until("creations go on", lambda: len(self.succeeded) > before + 2)
        load.cancel()
        await self.until("all images are whole and equal", self.is_whole)

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        for _ in range(600):
            if holds():
                return
            await asyncio.sleep(0.1)
        require(False, f"{what} did not come true in a minute")

    # --- trouble ------------------------------------------------------------------------------

    async def trouble(self) -> None:
        victim = self.rng.choice(self.controllers)
        leader = self.leader()
        if leader is not None and self.rng.random() < 0.7:
            victim = leader
        assert victim.life is not None
        kind = self.rng.random()
        if kind < 0.35:
            self.cut_off(victim)
            await asyncio.sleep(self.rng.uniform(0.5, 8))
            self.heal()
            return
        if kind < 0.6:
            victim.pause(victim.life)
            await asyncio.sleep(self.rng.uniform(0.5, 8))
            victim.resume(victim.life)
            return
        end = self.rng.choice([End.POWER_CUT, End.KILL])
        victim.end(victim.life, end, torn=self.rng.random() < 0.5)
        await asyncio.sleep(self.rng.uniform(0, 6))
        life = victim.boot()
        await asyncio.wait_for(life.ready, 60)

    def leader(self, but: Machine | None = None) -> Machine | None:
        for machine in self.controllers:
            life = machine.life
            if machine is not but and life is not None and life.alive and life.node is not None:
                quorum = life.node.quorum
                if quorum is not None and quorum.is_started and quorum.is_leader:
                    return machine
        return None

    def cut_off(self, victim: Machine) -> None:
        self.trace.add(f"{victim.host} is cut off")
        for other in self.machines:
            if other is not victim:
                self.loop.network.link(victim.host, other.host).cut = True
                self.loop.network.link(other.host, victim.host).cut = True

    def heal(self) -> None:
        for one in self.machines:
            for other in self.machines:
                self.loop.network.link(one.host, other.host).cut = False

    # --- load ---------------------------------------------------------------------------------

    async def create_forever(self) -> None:
        number = 0
        while True:
            number += 1
            await self.create(f"topic-{number}", self.machines[CONTROLLERS + number % BROKERS])
            await asyncio.sleep(self.rng.uniform(0.01, 0.2))

    async def create(self, name: str, broker: Machine) -> None:
        try:
            connection = await Connection.connect(broker.host, CLIENT_PORT, "client", 5000)
        except OSError:
            return
        try:
            replicas = 3 if name.endswith("7") else 1
            topic = CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=1, replication_factor=replicas
            )
            request = CreateTopicsRequest(topics=[topic], timeout_ms=4000)
            response = await connection.request(request, 6000)
        except OSError:
            return
        finally:
            await connection.close()
        code = response.topics[0].error_code
        self.trace.add(f"creation of {name}: {code}")
        if code == ErrorCode.NONE:
            self.succeeded.append(name)
        elif code == ErrorCode.INVALID_REPLICATION_FACTOR:
            self.refused.append(name)

    def is_whole(self) -> bool:
        images = []
        for machine in self.machines:
            assert machine.life is not None and machine.life.node is not None
            assert machine.life.node.loader is not None
            images.append(machine.life.node.loader.image)
        names = [set(image.topics.by_name) for image in images]
        require(not any(set(self.refused) & found for found in names), "a refused topic is there")
        whole = all(set(self.succeeded) <= found for found in names)
        return whole and all(image.topics == images[0].topics for image in images)


@pytest.mark.parametrize("seed", range(50))
def test_controllers_in_trouble(seed: int) -> None:
    Quorum(seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50, 250))
def test_controllers_in_trouble_for_long(seed: int) -> None:
    Quorum(seed).run()


class Recovery(Quorum):
    """The time without topic creation after a fault of the active controller."""

    fetch_timeout_ms, election_timeout_ms = 1000, 500

    def __init__(self, seed: int, what: str) -> None:
        super().__init__(seed)
        self.what = what
        self.back_after_ms = 0.0
        for machine in self.machines:
            machine.settings |= {
                "controller.quorum.fetch.timeout.ms": str(self.fetch_timeout_ms),
                "controller.quorum.election.timeout.ms": str(self.election_timeout_ms),
            }

    async def main(self) -> None:
        CURRENT_HOST.set("client")
        await asyncio.gather(*(machine.boot().ready for machine in self.machines))
        load = asyncio.create_task(self.create_forever())
        await asyncio.sleep(2 + self.rng.random())
        victim = self.leader()
        assert victim is not None and victim.life is not None
        begin_s = self.loop.time()
        if self.what == "kill":
            victim.end(victim.life, End.KILL)
        elif self.what == "pause":
            victim.pause(victim.life)
        else:
            self.cut_off(victim)
        await self.until("another leader", lambda: self.leader(but=victim) is not None)
        before = len(self.succeeded)
        await self.until("creations go on", lambda: len(self.succeeded) > before)
        self.back_after_ms = (self.loop.time() - begin_s) * 1000
        load.cancel()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", ["kill", "pause", "cut"])
def test_back_within_a_second_of_the_timeout(what: str, seed: int) -> None:
    """Followers begin an election after a fetch timeout of silence, give or take an eighth."""
    one = Recovery(seed, what)
    one.run()
    assert one.back_after_ms < one.fetch_timeout_ms * 1.125 + 1000


def test_equal_seeds_give_equal_traces() -> None:
    assert first_difference(Quorum(3).run(), Quorum(3).run()) is None


@pytest.mark.rest
def test_another_process_on_another_machine_sees_the_same() -> None:
    """Neither the hash seed nor the host's name, the date or the process id reaches a trace."""
    command = [sys.executable, "-m", "tests.sim.test_quorum_cluster", "3", "4", "--disguised"]
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"3 {Quorum(3).run().digest()}\n", done.stderr


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        trace = Quorum(number).run(disguised="--disguised" in sys.argv)
        print(number, trace.digest(), flush=True)
