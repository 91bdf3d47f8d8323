"""Operators and brokers: rolling restarts in good order, and a broker that is unregistered and
comes back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from client.errors import check
from protocol.errors import ErrorCode
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from simulation.faults.kind import Args, FaultKind, OperatorKind
from simulation.faults.process import has_pure_brokers, may_be_hit
from simulation.targets import draw_broker
from simulation.world.cluster import End

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shape import Shape
    from simulation.world.cluster import Machine

WHOLE_S = 5.0
"""How long an operator waits for full ISRs before the next node."""


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


async def _unregister(world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    operator, node_id = world.operator, machine.node_id
    others = [m for m in world.brokers if m is not machine and m.life is not None and m.life.alive]
    # The request goes through another broker, and this one comes back when it was answered.
    if (
        machine in world.controllers
        or not others
        or node_id in world.swapped
        or not world.promises.spares(node_id)
    ):
        return False

    async def ask() -> None:
        answer = await operator.cluster.request_any(UnregisterBrokerRequest(broker_id=node_id))
        check(answer.error_code, f"broker {node_id}", answer.error_message)

    world.unregistered.add(node_id)
    world.crash(machine, End.KILL, torn=False)
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
}
