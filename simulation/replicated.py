"""Shell: The world with replication: three controllers, three brokers, clients, every kind of
fault.

Two streams of faults run at once, one for controllers and one for brokers. Machines lose power
(with unflushed data), are killed, paused, or cut off: from all or some hosts, in one or both
directions. After every event the promises are checked (`judges.partitions`). At the end all faults
are over, and everything must become whole and stay whole.

A broker loses unflushed records only while every partition keeps an ISR member that has lost
nothing. No fault hits such a member until the others are back in the ISR. No controller is cut off
in the meantime, either: a controller that receives no heartbeats fences all brokers. The broker
with the last heartbeat is fenced last and stays in the ISR, though it may be the one that has lost
records. Without eligible leader replicas, as here, no broker could keep the promise otherwise;
`lose_everything` shows that the judges detect that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from metalog.image.features import ELR_VERSION
from protocol.errors import ApiError
from runtime import log
from simulation.clients.client import SimClient, Unknown
from simulation.clients.load import Load, Step
from simulation.clients.producers import Once, UntilAcked
from simulation.clients.readers import Consumer, Lister
from simulation.judges.changes import Changes
from simulation.judges.partitions import Promises
from simulation.world import traps
from simulation.world.cluster import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    Disk,
    End,
    Machine,
    NodeLife,
    SimCluster,
)
from simulation.world.invariants import require
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST, Network
from simulation.world.trace import Trace

CONTROLLERS, BROKERS = 3, 3
TOPICS = {"safe": (2, "2"), "loose": (1, "1")}
"""Name -> number of partitions, min.insync.replicas. All have three replicas."""
TROUBLE_S = 42.0
QUIET_S = 6.0
LEAST_S = 60.0
WHOLE_S = 60.0
LOG_LINES = 60
BROKER_SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "offsets.topic.replication.factor": "3",
}
SESSION_S = int(BROKER_SETTINGS["broker.session.timeout.ms"]) / 1000


@dataclass
class Result:
    """The result of one run."""

    seed: int
    trace: Trace
    virtual_s: float
    operations: int
    acked: int
    took_effect: dict[str, int]
    errors: dict[str, int]
    checks: int
    committed: int
    leader_epochs: int
    hints: int
    logged: list[str] = field(default_factory=list)


class WorldFailed(AssertionError):
    """A run that ended with a broken promise; the message has the data needed to replay it."""

    def __init__(self, world: Replicated, error: BaseException, logged: list[str]) -> None:
        seed, trace = world.seed, world.trace
        told = [line for line in trace.lines() if " /data/" not in line and " > " not in line]
        lines = "\n".join([*told[-60:], "", *world.promises.history, "", *logged])
        super().__init__(
            f"seed {seed}: {error!r}\n{lines}\n"
            f"replay: python -m tests.sim.test_replication {seed} {seed + 1}"
        )
        self.seed = seed
        self.trace = trace
        self.reason = error


Story = Callable[["Replicated"], Awaitable[None]]


class Replicated:
    """The run of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(f"{seed}/replicated")
        self.loop = VirtualLoop(Network(random.Random(f"{seed}/network")))
        self.trace = Trace(self.loop.time)
        self.cluster = SimCluster(self.loop, self.trace, seed, features={ELR_VERSION: 0})
        self.changes = Changes()
        self.promises = Promises(changes=self.changes)
        self.took_effect: dict[str, int] = {}
        self.busy: set[int] = set()
        """Nodes that a fault acts on."""
        self.heard_s = 0.0
        """Virtual time from which on no session expires because a controller was cut off."""
        voters = ",".join(f"{i}@node-{i}:{CONTROLLER_PORT}" for i in range(1, CONTROLLERS + 1))
        for node_id in range(1, CONTROLLERS + BROKERS + 1):
            controls = node_id <= CONTROLLERS
            name, port = ("CONTROLLER", CONTROLLER_PORT) if controls else ("PLAINTEXT", CLIENT_PORT)
            self.cluster.add(
                {
                    **BROKER_SETTINGS,
                    "process.roles": "controller" if controls else "broker",
                    "listeners": f"{name}://node-{node_id}:{port}",
                    "controller.quorum.voters": voters,
                }
            )
        self.load: Load | None = None
        self.broken: Exception | None = None

    @property
    def controllers(self) -> list[Machine]:
        return self.cluster.machines[:CONTROLLERS]

    @property
    def brokers(self) -> list[Machine]:
        return self.cluster.machines[CONTROLLERS:]

    def run(self, story: Story | None = None, *, disguised: bool = False) -> Result:
        """Run the story (default: all kinds of faults). Raises: WorldFailed for a broken
        promise."""
        logged: list[str] = []
        try:
            doors = traps.disguised() if disguised else traps.locked()
            with doors, self.changes.told(), log.captured() as events:
                try:
                    self.loop.run_world(self.main(story or Replicated.trouble))
                    require(not self.loop.failures, f"unhandled: {self.loop.failures[:3]}")
                finally:
                    told = [str(event) for event in events if event["log_level"] != "debug"]
                    logged = told[-LOG_LINES:]
        except Exception as error:
            raise WorldFailed(self, self.broken or error, logged) from error
        finally:
            self.loop.close()
        load, promises = self.load, self.promises
        assert load is not None
        return Result(
            self.seed,
            self.trace,
            self.loop.time(),
            load.operations,
            load.acked,
            self.took_effect,
            load.errors,
            promises.checks,
            sum(one.end for one in promises.partitions.values()),
            sum(len(one.leaders) for one in promises.partitions.values()),
            load.hints,
            logged,
        )

    async def main(self, story: Story) -> None:
        """Boot, run the story, and then wait until everything is whole."""
        CURRENT_HOST.set("client")
        for machine in self.cluster.machines:
            self.boot(machine)
        lives = [machine.life for machine in self.cluster.machines]
        await asyncio.wait_for(asyncio.gather(*(life.ready for life in lives if life)), 60)
        client = SimClient([(machine.host, CLIENT_PORT) for machine in self.brokers])
        clock = self.brokers[0].clock
        load = Load(client, self.promises, self.trace, seed=self.seed, clock=clock)
        self.load = load
        for name, (partitions, min_isr) in TOPICS.items():
            await self.create(client, name, partitions, {"min.insync.replicas": min_isr})
        load.enter({name: count for name, (count, _) in TOPICS.items()})
        for who, step, pause_ms in _clients(load):
            load.start(who, step, pause_ms)
        await self.unless_broken(story(self))
        await self.unless_broken(self.end(load))
        await client.close()

    async def create(
        self, client: SimClient, name: str, partitions: int, configs: dict[str, str]
    ) -> None:
        for _ in range(50):
            try:
                await client.create_topic(name, partitions, configs, BROKERS)
                return
            except (Unknown, ApiError):
                await asyncio.sleep(0.2)
        require(False, f"{name} could not be created")

    async def unless_broken(self, what: Awaitable[None]) -> None:
        """Wait for `what`, unless a client finds a promise broken before."""
        assert self.load is not None
        task = asyncio.ensure_future(what)
        done, _ = await asyncio.wait([task, self.load.trouble], return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()

    async def end(self, load: Load) -> None:
        """Require that without faults everything becomes whole, and writes succeed (P26)."""
        await asyncio.sleep(max(QUIET_S, LEAST_S - QUIET_S - self.loop.time()))
        load.strict = True
        before = load.acked
        await asyncio.sleep(QUIET_S)
        require(load.acked > before + 5, f"P26: only {load.acked - before} writes in {QUIET_S} s")
        await load.stop()
        await self.until(lambda: self.promises.convergence.whole())
        load.judge()
        images = {
            machine.host: machine.life.node.loader.image.topics
            for machine in self.cluster.machines
            if machine.life is not None and machine.life.node and machine.life.node.loader
        }
        for host, topics in images.items():
            require(topics == self.promises.metadata.image.topics, f"P5: {host} has other topics")

    async def until(self, missing: Callable[[], str | None]) -> None:
        deadline_s = self.loop.time() + WHOLE_S
        while (what := missing()) is not None:
            require(self.loop.time() < deadline_s, f"P26: {what}, {WHOLE_S} s after all trouble")
            await asyncio.sleep(0.1)

    # --- trouble ------------------------------------------------------------------------------

    def count(self, what: str) -> None:
        self.took_effect[what] = self.took_effect.get(what, 0) + 1

    def boot(self, machine: Machine) -> NodeLife:
        life = machine.boot()
        life.watch = self._after
        return life

    def _after(self, life: NodeLife) -> None:
        if self.broken is None and self.changes.marked:
            try:
                self.promises.after(life)
            except Exception as error:
                self.broken = error  # states seen while the world is taken down are meaningless
                raise
            self.changes.looked()

    def crash(self, machine: Machine, end: End, *, torn: bool) -> None:
        assert machine.life is not None
        machine.end(machine.life, end, torn=torn)
        self.promises.over(machine.life, lossy=end is End.POWER_CUT)
        self.count(end.value)

    async def trouble(self) -> None:
        """Run faults for `TROUBLE_S` seconds, on controllers and brokers at once."""
        ends_s = self.loop.time() + TROUBLE_S
        await asyncio.gather(
            self._stream(self._trouble_controllers, ends_s, 6.0),
            self._stream(self._trouble_brokers, ends_s, 1.5),
            self._stream(self._trouble_brokers, ends_s, 5.0),
        )

    async def _stream(
        self, make: Callable[[float], Awaitable[None]], ends_s: float, pause_s: float
    ) -> None:
        while self.loop.time() < ends_s:
            await asyncio.sleep(self.rng.uniform(0, 2 * pause_s))
            await make(max(0.2, ends_s - self.loop.time()))

    async def _trouble_controllers(self, left_s: float) -> None:
        victim = self.rng.choice(self.controllers)
        leader = next((one for one in self.controllers if _is_leader(one)), None)
        if leader is not None and self.rng.random() < 0.6:
            victim = leader
        await self._trouble(victim, min(left_s, self.rng.uniform(0.3, 6)), lossy=True)

    async def _trouble_brokers(self, left_s: float) -> None:
        victim = self.rng.choice(self.brokers)
        if victim.node_id in self.busy:
            return
        promises = self.promises
        if promises.lossy and not promises.spares(victim.node_id):
            return
        others = {*promises.lossy, *self.busy} & {b.node_id for b in self.brokers}
        heard = self.loop.time() >= self.heard_s
        lossy = promises.spares(victim.node_id) and not others and heard
        await self._trouble(victim, min(left_s, self.rng.uniform(0.2, 8)), lossy=lossy)

    async def _trouble(self, victim: Machine, for_s: float, *, lossy: bool) -> None:
        life = victim.life
        if life is None or not life.alive or victim.node_id in self.busy:
            return
        self.busy.add(victim.node_id)
        kind = self.rng.choices(["crash", "pause", "cut"], [3, 2, 3])[0]
        if kind == "crash":
            end = End.POWER_CUT if lossy and self.rng.random() < 0.7 else End.KILL
            self.crash(victim, end, torn=self.rng.random() < 0.5)
            await asyncio.sleep(for_s)
            await self._again(victim)
        elif kind == "pause":
            victim.pause(life)
            await asyncio.sleep(for_s)
            if life.parked:
                self.count("pause")
            victim.resume(life)
        else:
            await self._cut(victim, for_s)
        self.busy.discard(victim.node_id)

    async def _again(self, victim: Machine) -> None:
        life = self.boot(victim)
        await asyncio.wait([life.ready], timeout=60)
        require(life.ready.done(), f"{life} is not ready after a minute")
        life.ready.result()

    async def _cut(self, victim: Machine, for_s: float) -> None:
        """Cut a machine off from all, only controllers, or only brokers; in both directions
        or one."""
        controls = victim in self.controllers
        if controls and self.promises.lossy:
            return
        rng, network = self.rng, self.loop.network
        group = rng.choice([self.cluster.machines, self.controllers, self.brokers])
        ways = rng.choice([(True, True), (True, True), (True, False), (False, True)])
        links = []
        for other in group:
            if other is not victim:
                links += [network.link(victim.host, other.host)] if ways[0] else []
                links += [network.link(other.host, victim.host)] if ways[1] else []
        self.trace.add(f"{victim.host} is cut off from {[one.host for one in group]}, {ways}")
        held = sum(link.held for link in links)
        for link in links:
            link.cut = True
        if controls:
            # Sessions that were not renewed by then have expired, and the ISRs reflect that.
            self.heard_s = self.loop.time() + for_s + SESSION_S
        await asyncio.sleep(for_s)
        for link in links:
            link.cut = False
        if sum(link.held for link in links) > held:
            self.count("cut")


def _is_leader(machine: Machine) -> bool:
    life = machine.life
    if life is None or not life.alive or life.node is None:
        return False
    quorum = life.node.quorum
    return quorum is not None and quorum.is_started and quorum.is_leader


def _clients(load: Load) -> list[tuple[str, Step, float]]:
    return [
        ("acks all", Once(load, -1).step, 150.0),
        ("acks 1", Once(load, 1).step, 400.0),
        ("idempotent", UntilAcked(load, "i").step, 150.0),
        ("lister", Lister(load).step, 400.0),
        *(
            (f"consumer of {one}", Consumer(load, one.topic, one.index).step, 100.0)
            for one in load.partitions
        ),
    ]


async def calm(world: Replicated) -> None:
    """Let the cluster work without faults."""
    await asyncio.sleep(3)


async def swap_disks(world: Replicated) -> None:
    """Let brokers come back on an empty disk, and later on their old one, while controllers fail
    (F22).

    A partition that was in sync on the old disk alone waits for that disk. No other broker may lead
    it, and least of all the same broker on the empty disk.
    """
    ends_s = world.loop.time() + TROUBLE_S
    trouble = world._stream(world._trouble_controllers, ends_s, 6.0)
    await asyncio.gather(trouble, _swap_disk_of_the_last(world, 2))


async def _swap_disk_of_the_last(world: Replicated, times: int) -> None:
    rng = world.rng
    for _ in range(times):
        victim, *others = rng.sample(world.brokers, BROKERS)
        # If other brokers are left, the new disk catches up, and is in sync before the old one is
        # back.
        others = others[: rng.choice([0, 2, 2])]
        for other in others:
            world.crash(other, End.KILL, torn=False)
            await asyncio.sleep(rng.uniform(0, 4))
        await asyncio.sleep(rng.uniform(0, 4))
        old = await _swap(world, victim, None)
        off = [victim, *others]
        await asyncio.gather(*(_later(world, one, rng.uniform(0, 3)) for one in off))
        waiting = sum(isr == (victim.node_id,) for isr in _isrs(world))
        world.took_effect["waits"] = world.took_effect.get("waits", 0) + waiting
        await asyncio.sleep(rng.uniform(1, 5))
        # Partitions in sync on the new disk need other members in sync before that disk goes.
        await world.until(lambda victim=victim: _relied_on(world, victim))  # type: ignore[misc]
        await _swap(world, victim, old)
        await _later(world, victim, rng.uniform(0, 3))
        await world.until(
            lambda: None if all(len(isr) == BROKERS for isr in _isrs(world)) else "ISR"
        )


async def _swap(world: Replicated, machine: Machine, disk: Disk | None) -> Disk:
    world.crash(machine, End.KILL, torn=False)
    before = machine.swap_disk(disk)
    world.promises.disk_swapped(machine.node_id)
    world.count("disk")
    return before


async def _later(world: Replicated, machine: Machine, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await world._again(machine)


def _isrs(world: Replicated) -> list[tuple[int, ...]]:
    topics = world.promises.metadata.image.topics.by_id.values()
    return [one.isr for topic in topics for one in topic.partitions.values()]


def _relied_on(world: Replicated, machine: Machine) -> str | None:
    """Return a partition with no ISR member but this broker on its present disk, as text; else
    None."""
    node_id = machine.node_id
    for topic in world.promises.metadata.image.topics.by_id.values():
        for index, one in topic.partitions.items():
            if one.isr == (node_id,) and one.directory_of(node_id) == machine.directory_id:
                return f"{topic.name}-{index} has only {node_id} in sync, on its new disk"
    return None


async def lose_everything(world: Replicated) -> None:
    """Let every member of every ISR lose its unflushed records: no replication can survive that."""
    await asyncio.sleep(3)
    for machine in world.brokers:
        world.crash(machine, End.POWER_CUT, torn=False)
    await asyncio.sleep(1)
    await asyncio.gather(*(world._again(machine) for machine in world.brokers))
    await asyncio.sleep(10)
