"""Faults that force risky elections: all brokers end uncleanly and come back in a drawn order, and
a recovery in progress is struck (KIP-966, F25).

Each broker loses its unflushed records if the promises allow that (`process.may_lose`); the other
brokers are killed and keep theirs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simulation.faults.kind import Args, OperatorKind
from simulation.faults.process import may_be_hit, may_go_silent, may_lose, note_silence
from simulation.shapes.shape import MANAGER
from simulation.targets import is_active
from simulation.world.cluster import End
from simulation.world.links import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from metalog.image.values import PartitionImage
    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine
    from simulation.world.links import Link

DOWN_MS = (0, 0, 1, 40, 600)
"""Milliseconds between the ends of two brokers."""
OFF_MS = (1, 500, 3_000, 8_000)
"""Milliseconds from the last end to the first start."""
UP_MS = (0, 20, 500, 2_500, 6_000)
"""Milliseconds between two starts."""
STRUCK_MS_MIN, STRUCK_MS_MAX = 3_000, 20_000
BEHIND_MS_MIN, BEHIND_MS_MAX = 12_000, 25_000
MAJORITY = 2
"""Majority of three controllers; a shape needs more of them, so that one can be cut off."""
LOOK_S = 0.005
AT_ONCE_S = 0.001
BLOWS = (
    "restart",
    "restart other",
    "kill",
    "power cut",
    "pause",
    "controller",
    "cut off controller",
)
BACK_MS = (1, 300, 2_000, 5_000)
LATE_MS = (30.0, 100.0, 300.0)


def _draw_all(rng: Random, shape: Shape) -> tuple[str, Args]:
    ids = [one.node_id for one in shape.brokers]
    args: Args = {
        "down": rng.sample(ids, len(ids)),
        "up": rng.sample(ids, len(ids)),
        "spared": [one for one in ids if rng.random() < 0.15],
        "kept": [one for one in ids if rng.random() < 0.3],
        "down_ms": rng.choice(DOWN_MS),
        "off_ms": rng.choice(OFF_MS),
        "up_ms": [rng.choice(UP_MS) for _ in ids],
        "torn": rng.random() < 0.5,
        "for_ms": rng.randint(STRUCK_MS_MIN, STRUCK_MS_MAX),
    }
    return "all brokers", args


async def _all(world: RunWorld, event: Event, _rng: Random) -> bool:
    """End all brokers but the spared ones, and start them again. Those in `kept` lose nothing, even
    where it would be allowed."""
    args, ends_s = event.args, world.loop.time() + event.for_ms / 1000
    down: list[int] = []
    for node_id in args["down"]:
        machine = world.cluster.machines[node_id - 1]
        life = machine.life
        if node_id in world.busy or node_id in args["spared"] or life is None or not life.alive:
            continue
        if node_id not in args["kept"] and may_lose(world, machine):
            end = End.POWER_CUT
        elif may_be_hit(world, machine):
            end = End.KILL
        else:
            continue
        world.busy.add(node_id)
        world.crash(machine, end, torn=end is End.POWER_CUT and args["torn"])
        down.append(node_id)
        await asyncio.sleep(args["down_ms"] / 1000)
    await asyncio.sleep(min(args["off_ms"] / 1000, max(0.0, ends_s - world.loop.time())))
    boots = []
    for node_id, pause_ms in zip(args["up"], args["up_ms"], strict=True):
        if node_id in down:
            boots.append(
                asyncio.ensure_future(up_again(world, world.cluster.machines[node_id - 1]))
            )
            await asyncio.sleep(min(pause_ms / 1000, max(0.0, ends_s - world.loop.time())))
    # A node may wait for others before it is ready.
    await asyncio.gather(*boots)
    return bool(down)


async def up_again(world: RunWorld, machine: Machine) -> None:
    """Start the node again, and let later events hit it once it is ready."""
    await world.boot_again(machine)
    world.busy.discard(machine.node_id)


# --- a recovery that is under way -----------------------------------------------------------------


def _draw_strike(rng: Random, _shape: Shape) -> tuple[str, Args]:
    args: Args = {
        "blow": rng.choice(BLOWS),
        "which": rng.randrange(100),
        "back_ms": rng.choice(BACK_MS),
        "late_ms": rng.choice(LATE_MS),
        "for_ms": rng.randint(STRUCK_MS_MIN, STRUCK_MS_MAX),
        "other": rng.random() < 0.5,
    }
    return "a recovery", args


def leaderless(world: RunWorld) -> list[tuple[str, int, PartitionImage]]:
    """Return the leaderless partitions in the committed metadata, sorted: (topic, index, image)."""
    image = world.promises.metadata.image
    return [
        (topic.name, index, one)
        for topic in sorted(image.topics.by_id.values(), key=lambda one: one.name)
        for index, one in sorted(topic.partitions.items())
        if one.leader < 0
    ]


def _recovering(world: RunWorld) -> Machine | None:
    """Return the active controller if it waits for log answers of brokers, else None."""
    for machine in world.controllers:
        if is_active(machine):
            assert machine.life is not None and machine.life.node is not None
            server = machine.life.node.controller
            if server is not None and server.controller.stats.recovery.running > 0:
                return machine
    return None


class _LateAnswers:
    """Delay of the traffic from one broker to the controllers; from `hold` on it is held until
    `end`.

    It must end when the event's time is over: without these links there may be no active
    controller, and a struck broker does not become ready without one.
    """

    def __init__(
        self, world: RunWorld, slow: Machine, controllers: Sequence[Machine], trouble: Trouble
    ) -> None:
        self._network, self._trouble = world.loop.network, trouble
        self._links = [self._network.link(slow.host, one.host) for one in controllers]
        self._network.lay(trouble, self._links)
        self._held, self._over = 0, False

    def hold(self) -> None:
        if not self._held and not self._over:
            self._held = 1
            cut(self._links, 1)

    def end(self) -> None:
        if not self._over:
            self._over = True
            cut(self._links, -self._held)
            self._network.lift(self._trouble, self._links)


async def _strike(world: RunWorld, event: Event, rng: Random) -> bool:
    """Strike a recovery in progress.

    One broker whose answer is needed answers late, so that the recovery lasts. The blow hits that
    broker or another one that has answered: then the late answer comes when the struck broker is
    back in another incarnation.
    """
    ends_s = world.loop.time() + event.for_ms / 1000
    while not (needed := _needed(world)):
        if world.loop.time() >= ends_s:
            return False
        await asyncio.sleep(LOOK_S)
    slow = needed[event.args["which"] % len(needed)]
    others = [one for one in world.controllers if one is not slow]
    # Heartbeats are as late as answers: three of them to each of two controllers take seconds.
    note_silence(world, int((ends_s - world.loop.time()) * 1000))
    late = _LateAnswers(world, slow, others, Trouble(rng, late_ms=event.args["late_ms"]))
    ending = world.loop.call_at(ends_s, late.end)
    blow = event.args["blow"]
    other = blow == "restart other" or (blow == "restart" and event.args["other"])
    waits = other and len(needed) > 1
    done = False
    while not done and world.loop.time() < ends_s:
        controller = _recovering(world)
        if controller is not None:
            if waits:
                late.hold()
            if blow == "cut off controller":
                late.end()
                done = await _cut_off(world, controller, slow, event, ends_s)
                break
            struck = controller if blow == "controller" else slow
            if waits:
                struck = next(
                    (m for m in needed if m is not slow and _has_answered(world, m)), None
                )
            done = struck is not None and await _hit(world, struck, event, ends_s)
        await asyncio.sleep(LOOK_S)
    ending.cancel()
    late.end()
    return done


def _has_answered(world: RunWorld, machine: Machine) -> bool:
    """Return whether this broker has answered with its log end for a partition without leader."""
    image, laws = world.promises.metadata.image, world.promises.metadata.elections
    topics = image.topics.by_name
    return any(
        laws.answer_of(image, (topics[name].id, index), machine.node_id, one.leader_epoch)
        for name, index, one in leaderless(world)
    )


def _needed(world: RunWorld) -> list[Machine]:
    """Return the brokers that may have all committed records of a partition without leader."""
    promises = world.promises
    image, eligible = promises.metadata.image, promises.metadata.eligible
    known: set[int] = set()
    for name, index, _ in leaderless(world):
        known |= eligible.of[image.topics.by_name[name].id, index].known
    # A controller that is also a broker answers itself at once.
    return [one for one in world.brokers if one.node_id in known and not is_active(one)]


async def _cut_off(
    world: RunWorld, controller: Machine, slow: Machine, event: Event, ends_s: float
) -> bool:
    """Cut the controller off until another one was elected and has elected a leader. Then a
    broker's late answer reveals that to the old controller."""
    others = [one for one in world.controllers if one is not controller]
    left_s = max(0.0, ends_s - world.loop.time())
    if not others or slow is controller or not may_go_silent(world, controller, int(left_s * 1000)):
        return False
    links = between(world, controller, others)
    answers = between(world, controller, [slow])
    cut(links, 1)
    cut(answers, 1)
    while world.loop.time() < ends_s and not _knows_more(slow, controller):  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(LOOK_S)
    cut(answers, -1)
    await asyncio.sleep(min(event.args["back_ms"] / 1000, max(0.0, ends_s - world.loop.time())))
    cut(links, -1)
    return True


def _knows_more(one: Machine, other: Machine) -> bool:
    """Return whether a node has seen a newer leader epoch of some partition than another node."""
    images = [
        machine.life.node.loader.image
        for machine in (one, other)
        if machine.life is not None
        and machine.life.node is not None
        and machine.life.node.loader is not None
    ]
    if len(images) < 2:
        return True  # one of them has ended: there is nothing to wait for
    mine, its = images
    return any(
        partition.leader_epoch > its.topics.by_id[topic_id].partitions[index].leader_epoch
        for topic_id, topic in mine.topics.by_id.items()
        if topic_id in its.topics.by_id
        for index, partition in topic.partitions.items()
        if index in its.topics.by_id[topic_id].partitions
    )


def between(world: RunWorld, one: Machine, others: Sequence[Machine]) -> list[Link]:
    network = world.loop.network
    out = [network.link(one.host, other.host) for other in others]
    return [*out, *(network.link(other.host, one.host) for other in others)]


def cut(links: Sequence[Link], by: int) -> None:
    for link in links:
        link.cuts += by


async def _hit(world: RunWorld, machine: Machine, event: Event, ends_s: float) -> bool:
    blow = event.args["blow"]
    back_s = min(event.args["back_ms"] / 1000, max(0.0, ends_s - world.loop.time()))
    life = machine.life
    if life is None or not life.alive or machine.node_id in world.busy:
        return False
    if blow == "pause":
        if not may_go_silent(world, machine, int(back_s * 1000)):
            return False
        world.busy.add(machine.node_id)
        machine.pause(life)
        await asyncio.sleep(back_s)
        machine.resume(life)
    else:
        lossy = blow == "power cut"
        if not (may_lose(world, machine) if lossy else may_be_hit(world, machine)):
            return False
        world.busy.add(machine.node_id)
        world.crash(machine, End.POWER_CUT if lossy else End.KILL)
        await asyncio.sleep(AT_ONCE_S if blow.startswith("restart") else back_s)
        await world.boot_again(machine)
    world.busy.discard(machine.node_id)
    return True


def _draw_behind(rng: Random, shape: Shape) -> tuple[str, Args]:
    """Draw an event that lasts long enough to elect another controller, and a leader by it.

    All brokers have registered when the controller is cut off: a registration that it cannot commit
    would delay the others.
    """
    _, down = _draw_all(rng, shape)
    _, struck = _draw_strike(rng, shape)
    ids = [one.node_id for one in shape.brokers]
    orderly = {"spared": [], "kept": ids, "down_ms": 1, "off_ms": 500, "up_ms": [500 for _ in ids]}
    for_ms = rng.randint(BEHIND_MS_MIN, BEHIND_MS_MAX)
    blow = {"blow": "cut off controller", "late_ms": max(LATE_MS)}
    return "all brokers", {**down, **struck, **orderly, **blow, "for_ms": for_ms}


async def _behind(world: RunWorld, event: Event, rng: Random) -> bool:
    """Run both faults at once, since drawn apart they seldom coincide."""
    ended = asyncio.ensure_future(_all(world, event, rng))
    struck = await _strike(world, event, rng)
    await ended
    return struck


def has_elr(shape: Shape) -> bool:
    return shape.elr


def _may_be_behind(shape: Shape) -> bool:
    """Return whether the others can elect a controller while one is cut off and no broker leads,
    and logs are compared."""
    apart = not any(one.controls for one in shape.brokers)
    managed = shape.settings.get(MANAGER) == "true"
    return shape.elr and managed and apart and len(shape.controllers) > MAJORITY


KINDS = {
    "all down": OperatorKind(
        "elections", "all brokers end uncleanly, and come back one by one", _draw_all, _all, has_elr
    ),
    "recovery struck": OperatorKind(
        "elections",
        "a broker or the controller ends, or stands still, while a recovery asks for logs",
        _draw_strike,
        _strike,
        has_elr,
    ),
    "controller behind": OperatorKind(
        "elections",
        "all brokers end, and the controller that asks for their logs is cut off",
        _draw_behind,
        _behind,
        _may_be_behind,
    ),
}
