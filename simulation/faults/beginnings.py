"""Faults that strike a follower while its log begins behind the tier (KIP-405, KIP-1023).

The follower's process ends at one of the durable steps, its leader's ends, or the store is down
from then on.
"""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.faults.elections import up_again
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.process import may_be_hit, may_lose
from simulation.shapes.replicas import begins_late
from simulation.world.cluster import End
from simulation.world.disks import CHANGES, DiskTrouble
from simulation.world.life import PowerCut
from simulation.world.store import StoreTrouble
from storage.log.bootstrap import MARKER
from storage.objects import Weather

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine

STEPS: dict[str, tuple[str, str]] = {
    "marker": ("", MARKER),
    "empty log": ("create", ".log"),
    "epochs": ("", "leader-epoch-checkpoint"),
    "snapshot": ("fsync", ".snapshot"),
    "log start": ("", "log-start-offset-checkpoint"),
    "marker away": ("unlink", MARKER),
}
"""The durable steps in their order: the file operation ("": any) and the file that mark each. A
checkpoint is first written to a temporary file next to it."""
BLOWS = ("kill", "kill", "power cut", "power cut", "leader", "store")
BACK_MS = (1, 300, 2_000)
LOOK_S = 0.005
FOR_MS_MIN, FOR_MS_MAX = 3_000, 15_000


@dataclass(eq=False)
class AtStep(DiskTrouble):
    """Calls `then` once, at one step of a log that begins."""

    step: str = "marker"
    _folder: str = ""

    def strike(self, kind: str, path: str) -> None:
        if kind not in CHANGES:
            return
        folder, name = posixpath.split(path)
        if name == MARKER and kind != "unlink":
            self._folder = folder
        wanted, part = STEPS[self.step]
        due = self._folder and part in name and wanted in ("", kind)
        if due and (folder == self._folder or self.step == "log start"):
            super().strike(kind, path)


def _draw(rng: Random, _shape: Shape) -> tuple[str, Args]:
    args: Args = {
        "step": rng.choice(list(STEPS)),
        "blow": rng.choice(BLOWS),
        "after": rng.choice((0, 0, 1)),
        "back_ms": rng.choice(BACK_MS),
        "for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX),
    }
    return "a log that begins", args


async def _strike(world: RunWorld, event: Event, _rng: Random) -> bool:
    """Strike the first log that reaches the step, on whichever broker."""
    args, ends_s = event.args, world.loop.time() + event.for_ms / 1000
    struck: list[Machine] = []
    troubles = [(one, _trouble(world, one, event, struck)) for one in world.brokers]
    for machine, trouble in troubles:
        machine.disk_troubles.append(trouble)
    while not struck and world.loop.time() < ends_s:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(LOOK_S)
    for machine, trouble in troubles:
        machine.disk_troubles.remove(trouble)
    if not struck:
        return False
    left_s = max(0.0, ends_s - world.loop.time())
    back_s = min(args["back_ms"] / 1000, left_s)
    if args["blow"] == "store":
        trouble_of_store = StoreTrouble(Weather(down=True), None)
        world.store.lay(trouble_of_store)
        await asyncio.sleep(back_s)
        world.store.lift(trouble_of_store)
        return True
    victim = struck[0]
    if args["blow"] == "leader":
        leader = _leader_of(world, victim)
        if leader is None or leader.node_id in world.busy or not may_be_hit(world, leader):
            return False
        victim = leader
        world.busy.add(victim.node_id)
        world.crash(victim, End.KILL)
    await asyncio.sleep(back_s)
    await up_again(world, victim)
    return True


def _trouble(world: RunWorld, machine: Machine, event: Event, struck: list[Machine]) -> DiskTrouble:
    blow = event.args["blow"]

    def then() -> None:
        if struck:
            return
        if blow in ("leader", "store"):
            struck.append(machine)
            return
        cut, life = blow == "power cut", machine.life
        if machine.node_id in world.busy:
            return
        if may_lose(world, machine) if cut else may_be_hit(world, machine):
            struck.append(machine)
            world.busy.add(machine.node_id)
            world.crash(machine, End.POWER_CUT if cut else End.KILL)
            raise PowerCut(f"{life}: it ends at the step {event.args['step']}")

    return AtStep(step=event.args["step"], kinds=frozenset(CHANGES), after=event.args["after"],
                  most=1, then=then)  # fmt: skip


def _leader_of(world: RunWorld, machine: Machine) -> Machine | None:
    """Return the leader of a partition of which this broker is about to begin its replica."""
    life = machine.life
    node = None if life is None else life.node
    for one in () if node is None or node.broker is None else node.broker.replicas:
        if one.log.bounds.bootstrapping:
            return next((m for m in world.brokers if m.node_id == one.leader_id), None)
    return None


KINDS = {
    "beginning struck": OperatorKind(
        "replicas", "a follower's log begins behind the tier, and it, its leader or the store ends",
        _draw, _strike, begins_late,
    ),
}  # fmt: skip
