"""Shell: Kinds of faults: their victims, their effect and its reversal.

A fault is an async context manager: on entry it selects its victims and acts, on exit, also after
an error, it reverts the fault. It yields the victims and the reason why they were selected. The
numbers are those of the fault matrix that the tests cover.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from kraftbox.chaos.scene import Holding, Scene
from kraftbox.chaos.target import CUT, HOST, Ability, TargetError
from kraftbox.launcher.links import Link, LinkRule

SLOW = Link(delay_ms=50.0, jitter_ms=20.0, rate_bytes_per_s=375_000)
"""A round trip of 100 ms, 3 Mbit/s."""
LOSSY = Link(loss=0.1, delay_ms=1.0, duplicate=0.02, reorder=0.1)
CANCELLED = 0.5
LONE_S = 1.0
PAUSED_S = 0.45
RUNNING_S = 0.05


class Hit(NamedTuple):
    """The nodes that a fault hit, and why they were selected."""

    nodes: list[int]
    detail: str


FaultAction = Callable[[Scene, random.Random], AbstractAsyncContextManager[Hit]]


class Kind(NamedTuple):
    """A kind of fault. `number` is its row in the fault matrix."""

    number: str
    text: str
    needs: frozenset[Ability]
    action: FaultAction
    kills_all: bool = False

    def is_drawn(self, abilities: frozenset[Ability]) -> bool:
        """Return whether it is drawn without being requested by name.

        If all brokers lose their unflushed data, they may lose acknowledged records without
        breaking a promise. So such a kind is not drawn.
        """
        lossy = Ability.LOSSY_DISK in abilities
        return self.needs <= abilities and not (self.kills_all and lossy)


KINDS: dict[str, Kind] = {}


def _kind(
    name: str, number: str, text: str, *needs: Ability, kills_all: bool = False
) -> Callable[[Callable[[Scene, random.Random], AsyncIterator[Hit]]], FaultAction]:
    def register(function: Callable[[Scene, random.Random], AsyncIterator[Hit]]) -> FaultAction:
        action: FaultAction = asynccontextmanager(function)
        KINDS[name] = Kind(number, text, frozenset(needs), action, kills_all)
        return action

    return register


# --- processes ----------------------------------------------------------------------------------


@_kind("kill-leader", "F1", "kill -9 the leader of a partition", Ability.PROCESSES)
async def kill_leader(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    async with _down(scene, "kill", partition.leader):
        yield Hit([partition.leader], f"leader of partition {partition.number}")


@_kind("kill-follower", "F2", "kill -9 a follower of a partition", Ability.PROCESSES)
async def kill_follower(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    victim = rng.choice(
        [one for one in partition.replicas if one != partition.leader] or [partition.leader]
    )
    async with _down(scene, "kill", victim):
        yield Hit([victim], f"follower of partition {partition.number}")


@_kind("restart", "F3", "restart all nodes cleanly, one after another", Ability.PROCESSES)
async def restart(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    nodes = [one.node_id for one in await scene.members()]
    rng.shuffle(nodes)
    for node_id in nodes:
        await scene.act("stop", node_id)
        await scene.act("start", node_id)
        await scene.wait_until_whole(30.0)
    yield Hit(nodes, "one after the other")


@_kind("kill-all", "F4", "kill -9 all nodes at once", Ability.PROCESSES, kills_all=True)
async def kill_all(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    nodes = [one.node_id for one in await scene.members() if one.is_running]
    await asyncio.gather(*(scene.act("kill", node_id) for node_id in nodes))
    try:
        yield Hit(nodes, "")
    finally:
        # No node becomes ready before enough others run, so all start in parallel.
        await _each(scene, "start", nodes)


@_kind("pause-leader", "F5", "pause the leader of a partition (SIGSTOP)", Ability.PROCESSES)
async def pause_leader(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    async with _paused(scene, partition.leader):
        yield Hit([partition.leader], f"leader of partition {partition.number}")


@_kind("pause-controller", "F6", "pause the active controller (SIGSTOP)", Ability.PROCESSES)
async def pause_controller(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    controller = await scene.controller()
    async with _paused(scene, controller):
        yield Hit([controller], "active controller")


@_kind("kill-controller", "F7", "kill -9 the active controller and a leader", Ability.PROCESSES)
async def kill_controller(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    controller = await scene.controller()
    partition = await scene.a_leader(rng)
    victims = list(dict.fromkeys([partition.leader, controller]))
    async with _down(scene, "kill", *victims):
        yield Hit(victims, f"leader of partition {partition.number}, then the active controller")


@_kind(
    "lone-leader",
    "F24",
    "pause the followers of a partition, then kill its leader",
    Ability.PROCESSES,
)
async def lone_leader(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    followers = [one for one in partition.replicas if one != partition.leader]
    async with AsyncExitStack() as dead:
        async with _paused(scene, *followers):
            await asyncio.sleep(LONE_S)
            await dead.enter_async_context(_down(scene, "kill", partition.leader))
        yield Hit([partition.leader, *followers], f"replicas of partition {partition.number}")


@_kind("reassign", "F28", "reassign a partition, kill its leader, cancel", Ability.PROCESSES)
async def reassign(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    spare = [one for one in await scene.brokers() if one not in partition.replicas]
    wanted = [*partition.replicas[1:], rng.choice(spare)] if spare else partition.replicas[::-1]
    await scene.reassign(partition.number, wanted)
    async with _down(scene, "kill", partition.leader):
        yield Hit(
            [partition.leader],
            f"leader of partition {partition.number}, during its reassignment to {wanted}",
        )
    if rng.random() < CANCELLED:
        await scene.reassign(partition.number, None)


# --- power ---------------------------------------------------------------------------------------


@_kind(
    "power-cut",
    "F24",
    "up to min ISR - 1 brokers lose unflushed data",
    Ability.PROCESSES,
    Ability.LOSSY_DISK,
)
async def power_cut(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    most = min(scene.min_isr - 1, len(partition.replicas) - 1)
    if most < 1:
        raise TargetError(
            f"a power cut would lose records: min.insync.replicas is {scene.min_isr} "
            f"with {len(partition.replicas)} replicas"
        )
    # The leader is the important victim; the others are drawn.
    others = [one for one in partition.replicas if one != partition.leader]
    victims = [partition.leader, *rng.sample(others, rng.randint(1, most) - 1)]
    async with _cut_power(scene, victims):
        yield Hit(victims, f"leader of partition {partition.number} first")


@_kind(
    "power-cut-all",
    "F25",
    "all brokers lose unflushed data",
    Ability.PROCESSES,
    Ability.LOSSY_DISK,
    kills_all=True,
)
async def power_cut_all(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    victims = await scene.brokers()
    rng.shuffle(victims)
    async with _cut_power(scene, victims):
        yield Hit(victims, "")


# --- disks ---------------------------------------------------------------------------------------


@_kind(
    "replace-broker",
    "F22",
    "restart brokers with empty disks; other replicas have every record",
    Ability.PROCESSES,
    Ability.DISKS,
)
async def replace_broker(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    members = await scene.members()
    # A voter that lost its vote breaks the quorum, so controllers keep their disks.
    found = [one.node_id for one in members if one.is_broker and not one.is_controller]
    rng.shuffle(found)
    found.sort(key=lambda node_id: node_id != partition.leader)
    holdings = await scene.holdings()
    victims: list[int] = []
    for node_id in found[: rng.randint(1, len(found) or 1)]:
        if not _short(holdings, [*victims, node_id]):
            victims.append(node_id)
    if not victims:
        raise TargetError(
            "no broker's disk may be emptied: "
            f"{_short(holdings, found[:1]) or 'all are controllers'}"
        )
    try:
        await _each(scene, "kill", victims)
        # The ISR may have shrunk in the meantime, so that the victims' data is needed.
        holdings = await scene.holdings()
        short = _short(holdings, victims)
        if short:
            raise TargetError(f"the disks of {victims} may not be emptied: {short}")
        for node_id in victims:
            await scene.target.empty_disk(node_id)
        yield Hit(victims, _gone(holdings, victims))
    finally:
        await _each(scene, "start", victims)


def _short(holdings: Sequence[Holding], victims: Sequence[int]) -> str:
    """Return why these nodes cannot be replaced at once; empty if they can."""
    for one in holdings:
        if not one.can_spare(victims):
            others = sorted(one.isr.difference(victims))
            return f"{one.name} needs {one.min_isr} other replicas in sync, has {others or 'none'}"
    return ""


def _gone(holdings: Sequence[Holding], victims: Sequence[int]) -> str:
    hit = {one.name: one for one in holdings if not one.replicas.isdisjoint(victims)}
    replicas = sum(len(one.replicas.intersection(victims)) for one in hit.values())
    others = min((len(one.isr.difference(victims)) for one in hit.values()), default=0)
    return (
        f"{replicas} replicas emptied; each partition had at least {others} other replicas in sync"
    )


# --- the network --------------------------------------------------------------------------------


@_kind("cut-leader", "F8", "disconnect a leader completely", Ability.NETWORK)
async def cut_leader(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    async with _cut_off(scene, partition.leader):
        yield Hit([partition.leader], f"leader of partition {partition.number}")


@_kind("cut-controller", "F8", "disconnect the active controller", Ability.NETWORK)
async def cut_controller(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    controller = await scene.controller()
    async with _cut_off(scene, controller):
        yield Hit([controller], "active controller")


@_kind(
    "cut-leader-from-nodes",
    "F8",
    "disconnect a leader from the nodes, not from clients",
    Ability.LINKS,
)
async def cut_leader_from_nodes(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    others = [one.node_id for one in await scene.members() if one.node_id != partition.leader]
    async with _links(scene, [*_both(partition.leader, others, CUT)]):
        yield Hit(
            [partition.leader], f"leader of partition {partition.number}; clients can reach it"
        )


@_kind("deaf-leader", "F9", "a leader can send and not receive", Ability.LINKS)
async def deaf_leader(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    others = [one.node_id for one in await scene.members() if one.node_id != partition.leader]
    async with _links(scene, [LinkRule(other, partition.leader, CUT) for other in others]):
        yield Hit(
            [partition.leader],
            f"leader of partition {partition.number} receives nothing from nodes",
        )


@_kind("mute-leader", "F9", "a leader can receive and not send", Ability.LINKS)
async def mute_leader(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    others = [one.node_id for one in await scene.members() if one.node_id != partition.leader]
    async with _links(scene, [LinkRule(partition.leader, other, CUT) for other in others]):
        yield Hit(
            [partition.leader],
            f"nodes receive nothing from the leader of partition {partition.number}",
        )


@_kind("cut-from-controllers", "F9", "disconnect a leader from the controllers", Ability.LINKS)
async def cut_from_controllers(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    controllers = [one.node_id for one in await scene.members() if one.is_controller]
    others = [one for one in controllers if one != partition.leader]
    async with _links(scene, [*_both(partition.leader, others, CUT)]):
        yield Hit([partition.leader], f"leader of partition {partition.number} and the controllers")


@_kind("cut-follower", "F10", "disconnect a follower from its leader only", Ability.LINKS)
async def cut_follower(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    followers = [one for one in partition.replicas if one != partition.leader] or [partition.leader]
    victim = rng.choice(followers)
    async with _links(scene, [*_both(victim, [partition.leader], CUT)]):
        yield Hit(
            [victim, partition.leader], f"follower and leader of partition {partition.number}"
        )


@_kind("cut-clients", "F11", "disconnect the clients from all nodes", Ability.LINKS)
async def cut_clients(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    nodes = [one.node_id for one in await scene.members()]
    async with _links(scene, [*_both(HOST, nodes, CUT)]):
        yield Hit([], "all clients")


@_kind("slow-network", "F12", "all links: 100 ms round trip, jitter, 3 Mbit/s", Ability.LINKS)
async def slow_network(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    async with _everywhere(scene, SLOW) as hit:
        yield hit


@_kind("lossy-network", "F13", "all links: 10 % loss, duplicates, reordering", Ability.LINKS)
async def lossy_network(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    async with _everywhere(scene, LOSSY) as hit:
        yield hit


# --- one process from inside ------------------------------------------------------------------


@_kind("slow-follower", "F15", "a follower gets a tenth of the processor time", Ability.PROCESSES)
async def slow_follower(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    victim = rng.choice(
        [one for one in partition.replicas if one != partition.leader] or [partition.leader]
    )

    stopping = asyncio.Event()

    async def stutter() -> None:
        while not stopping.is_set():
            async with _paused(scene, victim):
                await asyncio.sleep(PAUSED_S)
            await asyncio.sleep(RUNNING_S)

    task = asyncio.create_task(stutter())
    try:
        yield Hit([victim], f"follower of partition {partition.number}")
    finally:
        # Not cancelled, because the node must not stay paused.
        stopping.set()
        await task


@_kind("slow-leader", "F16", "the disk of a leader is slow", Ability.SLOW_DISK)
async def slow_leader(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    async with _slow_disk(scene, partition.leader):
        yield Hit([partition.leader], f"leader of partition {partition.number}")


@_kind("stall-leader", "F35", "the event loop of a leader stops", Ability.STALL)
async def stall_leader(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    await scene.target.stall(partition.leader)
    yield Hit([partition.leader], f"leader of partition {partition.number}")


@_kind("no-descriptors", "F36", "a leader cannot open more files", Ability.DESCRIPTORS)
async def no_descriptors(scene: Scene, rng: random.Random) -> AsyncIterator[Hit]:
    partition = await scene.a_leader(rng)
    await scene.target.exhaust_descriptors(partition.leader)
    try:
        yield Hit([partition.leader], f"leader of partition {partition.number}")
    finally:
        await scene.target.restore_descriptors(partition.leader)


# --- reversal of faults -----------------------------------------------------------------------


@asynccontextmanager
async def _down(scene: Scene, action: str, *nodes: int) -> AsyncIterator[None]:
    try:
        for node_id in nodes:
            await scene.act(action, node_id)
        yield
    finally:
        await _each(scene, "start", nodes)


@asynccontextmanager
async def _cut_power(scene: Scene, nodes: Sequence[int]) -> AsyncIterator[None]:
    """Kill all nodes at the same time; start all in parallel, as none is ready alone."""
    try:
        await _each(scene, "kill", nodes)
        yield
    finally:
        await _each(scene, "start", nodes)


@asynccontextmanager
async def _paused(scene: Scene, *nodes: int) -> AsyncIterator[None]:
    try:
        for node_id in nodes:
            await scene.act("pause", node_id)
        yield
    finally:
        await _each(scene, "resume", nodes)


async def _each(scene: Scene, action: str, nodes: Sequence[int]) -> None:
    """Act on all nodes in parallel, also if some fail; then raise the first failure."""
    acts = (scene.act(action, node_id) for node_id in nodes)
    for result in await asyncio.gather(*acts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


@asynccontextmanager
async def _cut_off(scene: Scene, node_id: int) -> AsyncIterator[None]:
    try:
        await scene.target.cut_off(node_id)
        yield
    finally:
        await scene.target.heal()


@asynccontextmanager
async def _links(scene: Scene, rules: list[LinkRule]) -> AsyncIterator[None]:
    try:
        await scene.target.set_links(rules)
        yield
    finally:
        await scene.target.heal()


@asynccontextmanager
async def _everywhere(scene: Scene, link: Link) -> AsyncIterator[Hit]:
    ends = [HOST, *(one.node_id for one in await scene.members())]
    rules = [LinkRule(a, b, link) for a in ends for b in ends if a != b]
    async with _links(scene, rules):
        yield Hit(ends[1:], "every link")


@asynccontextmanager
async def _slow_disk(scene: Scene, node_id: int) -> AsyncIterator[None]:
    await scene.target.toggle_slow_disk(node_id)
    try:
        yield
    finally:
        await scene.target.toggle_slow_disk(node_id)


def _both(one: int, others: list[int], link: Link) -> list[LinkRule]:
    return [
        rule
        for other in others
        for rule in (LinkRule(one, other, link), LinkRule(other, one, link))
    ]
