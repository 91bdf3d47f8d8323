"""Faults of disks that do not keep flushed data: bits flip, for good and unnoticed (F20).

Every process on that machine reads them flipped, also at its start. This ends when other data is
written there, the disk is replaced, or an operator repairs it. Code outside the machine reads the
original data, so judges compare it with the node's behaviour.

Only bits flip that a checksum or the frame of a batch covers. A base offset and a leader epoch have
no checksum in any Kafka.

* In a topic of clients one broker loses some of its closed segments. As long as it runs, that loses
  nothing: consumers and followers refuse such a batch. Recovery cuts a log there. So its power goes
  only where the promises survive the loss of unflushed records (`may_lose`), and where other
  brokers have the flushed ones, too. In the end it gets an empty disk, or its bits are repaired.
  The event takes effect if the broker has read some of these bits.
* In the metadata log bits flip in committed batches before the last one. In the last one on a disk,
  a wrong length looks like a write torn by a crash: no log of this format can distinguish these. No
  other promise is suspended. A voter stops until it is repaired; a broker continues or is back
  after its next start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from metalog.quorum.log import DIRECTORY_NAME
from protocol.batch.header import (
    CRC_START,
    HEADER_BYTES,
    MAGIC_POSITION,
    BatchHeader,
    iter_batches,
)
from simulation.faults.disk import holds_alone
from simulation.faults.kind import Args, FaultKind
from simulation.faults.process import may_be_hit, may_lose
from simulation.judges.nodes import KEPT_NOT
from simulation.shapes.shape import SEGMENT_BYTES_KEY, TIERED
from simulation.targets import draw_broker, draw_controller
from simulation.world.cluster import End
from simulation.world.invariants import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine, NodeLife

BATCH_ROT, METADATA_ROT = "batch rot", "metadata rot"
LENGTH_LAST = 11
"""The byte of a batch with the lowest bits of its length."""
BATCHES = (1, 2, 8)
RESTARTS = ("none", "power", "stop")
SPOILT_MS_MIN, SPOILT_MS_MAX = 1_000, 12_000
STOP_S_MAX = 10.0
OBSERVER_CHANCE = 0.1
LEADER_CHANCE = 0.7
ROLLS_MAX = 8_192
"""Bytes of a segment that a topic's clients fill within seconds."""


def _draw(rng: Random, target: str) -> tuple[str, Args]:
    return target, {
        "batches": rng.choice(BATCHES),
        "restart": rng.choice(RESTARTS),
        "for_ms": rng.randint(SPOILT_MS_MIN, SPOILT_MS_MAX),
    }


def _draw_batches(rng: Random, shape: Shape) -> tuple[str, Args]:
    """Draw a topic that soon has closed segments, if there is one, and mostly its leader."""
    rolls = [
        one
        for one in shape.topics
        if int(one.configs.get(SEGMENT_BYTES_KEY, ROLLS_MAX + 1)) <= ROLLS_MAX
    ]
    topic = rng.choice(rolls or shape.topics)
    leader = f"leader of {topic.name}-{rng.randrange(topic.partitions)}"
    target, args = _draw(rng, leader if rng.random() < LEADER_CHANCE else draw_broker(rng, shape))
    return target, {**args, "topic": topic.name, "replaced": rng.random() < 0.5}


def _draw_metadata(rng: Random, shape: Shape) -> tuple[str, Args]:
    """Draw mostly a controller: brokers flush their metadata log only before a snapshot, so they
    have little of it on disk."""
    own = rng.random() < OBSERVER_CHANCE
    return _draw(rng, (draw_broker if own else draw_controller)(rng, shape))


# --- topics of clients ----------------------------------------------------------------------------


async def _batches_rot(world: RunWorld, machine: Machine, event: Event, rng: Random) -> bool:
    """Flip bits in batches of a topic. The node must keep running; only this fault may end it."""
    disk = machine.disk
    if not may_be_hit(world, machine) or not _spoil_batches(world, machine, event, rng):
        return False
    before, half_s = disk.rot_reads, event.for_ms / 2000
    await asyncio.sleep(half_s)
    if event.args["restart"] == "power" and _may_recover(world, machine):
        world.crash(machine, End.POWER_CUT)
        await world.boot_again(machine)
    elif event.args["restart"] == "stop" and may_be_hit(world, machine):
        await world.stop(machine)
        await world.boot_again(machine)
    await asyncio.sleep(half_s)
    if event.args["replaced"] and machine not in world.controllers and _may_recover(world, machine):
        world.crash(machine, End.POWER_CUT)
        machine.swap_disk(None)
        world.promises.disk_swapped(machine.node_id)
        await world.boot_again(machine)
    else:
        machine.disk.repair()
    return disk.rot_reads > before


def _may_recover(world: RunWorld, machine: Machine) -> bool:
    """Return whether the promises hold if this broker forgets its flushed records, too."""
    return may_lose(world, machine) and not holds_alone(world, machine)


def _spoil_batches(world: RunWorld, machine: Machine, event: Event, rng: Random) -> int:
    """Spoil batches in the topic's closed segments. Returns: their number.

    In tiered topics headers are spared, since times and producers of a copy come from headers.
    """
    files, topic = machine.files, event.args["topic"]
    node = None if machine.life is None else machine.life.node
    if node is None or node.broker is None or files is None:
        return 0
    tiered = world.promises.configs(topic).get(TIERED) == "true"
    found = []
    for log in node.broker.logs.logs.values():
        for segment in list(log.segments)[:-1] if log.topic == topic else ():
            path, kept = files.durable_bytes(segment.log.path)
            if path:
                data = machine.disk.read(path)[:kept]
                found += [(path, at, header) for header, at in iter_batches(data)]
    return _spoil(machine, found, event.args["batches"], rng, in_header=not tiered)


def _spoil(
    machine: Machine,
    found: list[tuple[str, int, BatchHeader]],
    most: int,
    rng: Random,
    *,
    in_header: bool = True,
) -> int:
    """Spoil one bit in each of at most `most` batches. Returns: the number of batches."""
    chosen = rng.sample(found, min(most, len(found)))
    for path, at, header in chosen:
        first = CRC_START if in_header else HEADER_BYTES
        frame = (LENGTH_LAST, MAGIC_POSITION) if in_header else ()
        where = rng.choice([*frame, *[rng.randrange(first, header.size_bytes)] * 4])
        machine.disk.spoil(path, at + where, 1 << rng.randrange(8))
    return len(chosen)


# --- the metadata log -----------------------------------------------------------------------------


async def _metadata_rots(world: RunWorld, machine: Machine, event: Event, rng: Random) -> bool:
    """Flip bits in the metadata log. A node that reads them must stop with an error that names the
    place, and a voter must not start with them."""
    if not may_be_hit(world, machine):
        return False
    found = list(_committed(world, machine))
    if not _spoil(machine, found, event.args["batches"], rng):
        return False
    machine.lost_metadata = True
    half_s = event.for_ms / 2000
    runs = await _lives(world, machine, half_s)
    if runs and event.args["restart"] != "none" and may_be_hit(world, machine):
        had = _committed_end(world, machine)
        world.crash(machine, End.KILL)
        runs = await _starts(world, machine)
        forgot = runs and machine in world.controllers and _committed_end(world, machine) < had
        require(
            not forgot, f"M6: {machine.host} is a voter and has less than {had} of the metadata"
        )
    runs = runs and await _lives(world, machine, half_s)
    if not runs and machine.life is not None and machine.life.alive:
        world.crash(machine, End.KILL)
    machine.disk.repair()
    if not runs:
        await world.boot_again(machine)
    machine.lost_metadata = False
    return True


def _committed(world: RunWorld, machine: Machine) -> Iterator[tuple[str, int, BatchHeader]]:
    """Yield batches that are followed by another committed one in their file: file, position,
    header."""
    directory = f"/data/{DIRECTORY_NAME}"
    end = world.promises.metadata.end
    for name in machine.disk.listdir(directory) if machine.disk.isdir(directory) else ():
        if name.endswith(".log"):
            path = f"{directory}/{name}"
            batches = list(iter_batches(machine.disk.read(path)))
            committed = [one for one in batches if one[0].next_offset <= end]
            yield from ((path, at, header) for header, at in committed[:-1])


def _committed_end(world: RunWorld, machine: Machine) -> int:
    """Return the end of the committed part of this node's metadata log."""
    node = None if machine.life is None else machine.life.node
    quorum = None if node is None else node.quorum
    if quorum is None or not quorum.is_started:
        return 0
    return min(quorum.log_end_offset, world.promises.metadata.end)


async def _lives(world: RunWorld, machine: Machine, for_s: float) -> bool:
    """Return whether the node still runs after `for_s`; stop it if it has failed."""
    life = machine.life
    node = None if life is None else life.node
    assert life is not None and node is not None
    ends: list[asyncio.Future[Any]] = [node.failed, life.over]
    await asyncio.wait(ends, timeout=for_s, return_when=asyncio.FIRST_COMPLETED)
    if not node.failed.done():
        return True
    stopping = asyncio.ensure_future(world.stop(machine))
    await asyncio.wait([stopping], timeout=STOP_S_MAX)
    if stopping.done():
        stopping.result()
    else:
        stopping.cancel()
    return False


async def _starts(world: RunWorld, machine: Machine) -> bool:
    """Return whether the node can start; a refusal must name the file, the position and the
    offset."""
    life: NodeLife = world.boot(machine)
    ends: list[asyncio.Future[Any]] = [life.ready, life.over]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    error = life.ready.exception() if life.ready.done() else None
    if error is None:
        return life.alive
    told = str(error)
    named = all(part in told for part in (DIRECTORY_NAME, ".log", "offset "))
    require(KEPT_NOT.lower() in told.lower() and named, f"F20: {told}")
    return False


KINDS = {
    BATCH_ROT: FaultKind(
        "rot",
        "a broker's disk does not keep batches of a topic's older segments",
        _draw_batches,
        _batches_rot,
    ),
    METADATA_ROT: FaultKind(
        "rot",
        "a node's disk does not keep batches of the metadata log",
        _draw_metadata,
        _metadata_rots,
    ),
}
