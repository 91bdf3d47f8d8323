"""Operators and brokers: rolling restarts in good order, and brokers that end, are unregistered and
come back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from client.errors import check
from protocol.errors import ErrorCode
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from simulation.faults.kind import Args, FaultKind, OperatorKind
from simulation.faults.process import has_pure_brokers, may_be_hit, may_lose
from simulation.targets import draw_broker
from simulation.world.cluster import End

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine

WHOLE_S = 5.0
"""Seconds that an operator waits for full ISRs before the next node."""


def _draw_roll(rng: Random, shape: Shape) -> tuple[str, Args]:
    ids = [one.node_id for one in shape.nodes]
    count = rng.randint(1, len(ids))
    return "all nodes", {"nodes": rng.sample(ids, count), "off_ms": rng.choice([0, 100, 1500])}


async def _roll(world: RunWorld, event: Event, _rng: Random) -> bool:
    done = False
    for node_id in event.args["nodes"]:
        machine = world.cluster.machines[node_id - 1]
        life = machine.life
        if node_id in world.busy or life is None or not life.alive:
            continue
        if not may_be_hit(world, machine) or not life.ready.done():
            continue
        world.busy.add(node_id)
        await world.stop(machine)
        await asyncio.sleep(event.args["off_ms"] / 1000)
        await world.boot_again(machine)
        world.busy.discard(node_id)
        done = True
        with contextlib.suppress(TimeoutError):
            whole = world.until(lambda: world.promises.convergence.out_of_sync() is None)
            await asyncio.wait_for(whole, WHOLE_S)
    return done


def _draw_unregister(rng: Random, shape: Shape) -> tuple[str, Args]:
    return draw_broker(rng, shape), {}


def _draw_unregister_lost(rng: Random, shape: Shape) -> tuple[str, Args]:
    """Up again at once, or later."""
    args: Args = {"torn": rng.random() < 0.5}
    if rng.random() < 0.5:
        args["for_ms"] = 1
    return draw_broker(rng, shape), args


async def _unregister(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    if not _may_be_forgotten(world, machine) or not world.promises.ends.spares(machine.node_id):
        return False
    return await _end_and_forget(world, machine, event, End.KILL)


async def _unregister_lost(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    """An operator takes a broker that has lost power for gone. Its next registration follows none
    that the controllers know, and is of a broker that has lost what it had not flushed (P11)."""
    if not _may_be_forgotten(world, machine) or not may_lose(world, machine):
        return False
    return await _end_and_forget(world, machine, event, End.POWER_CUT)


def _may_be_forgotten(world: RunWorld, machine: Machine) -> bool:
    """Whether the request can go through another broker: this one comes back when it was
    answered."""
    others = [m for m in world.brokers if m is not machine and m.life is not None and m.life.alive]
    swapped = machine.node_id in world.swapped
    return bool(others) and not swapped and machine not in world.controllers


async def _end_and_forget(world: RunWorld, machine: Machine, event: Event, end: End) -> bool:
    operator, node_id = world.operator, machine.node_id

    async def ask() -> None:
        answer = await operator.cluster.request_any(UnregisterBrokerRequest(broker_id=node_id))
        check(answer.error_code, f"broker {node_id}", answer.error_message)

    world.unregistered.add(node_id)
    world.crash(machine, end, torn=bool(event.args.get("torn")))
    code = await operator.insist(ask)
    await asyncio.sleep(event.for_ms / 1000)
    await world.boot_again(machine)
    return code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED)


KINDS: dict[str, FaultKind | OperatorKind] = {
    "rolling restart": OperatorKind(
        "operators", "node after node stops in good order and starts again", _draw_roll, _roll
    ),
    "unregister": FaultKind(
        "operators",
        "a broker is stopped and unregistered, and comes back",
        _draw_unregister,
        _unregister,
        has_pure_brokers,
    ),
    "unregister lost": FaultKind(
        "operators",
        "a broker loses power and what was not flushed, is unregistered, and comes back",
        _draw_unregister_lost,
        _unregister_lost,
        has_pure_brokers,
    ),
}
