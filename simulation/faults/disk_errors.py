"""Faults of disks that keep running: errors of file calls, a full disk, slow and hanging flushes,
bits that are read wrongly.

A node stops if its disk fails a file call (docs/fatal-tasks.md). It is started again when the fault
is over.
"""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from typing import TYPE_CHECKING, Any

from protocol.batch.header import CRC_START, HEADER_BYTES, iter_batches
from simulation.faults.kind import Args, FaultKind
from simulation.faults.process import may_be_hit, may_go_silent, may_lose
from simulation.judges.partitions import OFFSETS_TOPIC
from simulation.shapes.shape import TIERED
from simulation.targets import draw_broker, draw_node
from simulation.world.cluster import End
from simulation.world.disks import CHANGES, SYNCS, WRITES, DiskTrouble

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine, NodeLife
    from storage.log.segment import Segment

ANY = (*CHANGES, "read")
PLACES = ("", "", "__cluster_metadata", "/t", "checkpoint")
"""Parts of paths: any file, the metadata log, partitions of topics, checkpoints."""
STOP_S_MAX = 10.0
HEARD_S = 1.0
"""Seconds within which a node reacts to a failed file call."""
ROT = "index rot"
FLUSH_MS = (50.0, 300.0, 1_500.0)

Drawn = tuple[str, Args]


def _draw(kinds: tuple[str, ...], after: tuple[int, ...], rng: Random, shape: Shape) -> Drawn:
    return draw_node(rng, shape), {
        "kinds": list(kinds),
        "path_has": rng.choice(PLACES),
        "after": rng.choice(after),
    }


def _draw_fsync(rng: Random, shape: Shape) -> Drawn:
    target, args = _draw(SYNCS, (0, 0, 1, 5), rng, shape)
    return target, {**args, "cut": rng.random() < 0.5}


def _draw_any(rng: Random, shape: Shape) -> Drawn:
    target, args = _draw(ANY, (0, 3, 20, 100), rng, shape)
    return target, {**args, "most": rng.choice((1, None))}


async def _refuses(
    code: int, world: RunWorld, machine: Machine, event: Event, _rng: Random
) -> bool:
    """Let file calls fail with this error. With `cut`, data of a failed flush is lost, as if the
    kernel had dropped it."""
    cut = bool(event.args.get("cut"))
    if not (may_lose(world, machine) if cut else may_be_hit(world, machine)):
        return False
    life = machine.life
    assert life is not None
    wanted = {name: value for name, value in event.args.items() if name not in ("for_ms", "cut")}
    trouble = DiskTrouble(**{**wanted, "kinds": frozenset(wanted["kinds"])}, code=code)
    until_s = world.loop.time() + event.for_ms / 1000
    machine.disk_troubles.append(trouble)
    stopped = await _stops(world, machine, life, until_s, cut=cut)
    machine.disk_troubles.remove(trouble)
    if not stopped and trouble.hits["refused"]:
        stopped = await _stops(world, machine, life, until_s + HEARD_S, cut=cut)
    if stopped:
        await asyncio.sleep(max(0.0, until_s - world.loop.time()))
        await world.boot_again(machine)
    return trouble.hits["refused"] > 0


async def _stops(
    world: RunWorld, machine: Machine, life: NodeLife, until_s: float, *, cut: bool
) -> bool:
    """Return whether the node failed before `until_s`; if so, end it as its process would end."""
    node = life.node
    assert node is not None
    left_s = until_s - world.loop.time()
    ends: list[asyncio.Future[Any]] = [node.failed, life.over]
    await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    if not node.failed.done():
        return False
    # other brokers may have lost records in the meantime (seed 5829)
    cut = cut and may_lose(world, machine)
    if not cut:
        stopping = asyncio.ensure_future(world.stop(machine))
        await asyncio.wait([stopping], timeout=STOP_S_MAX)
        if stopping.done():
            stopping.result()
            return True
        stopping.cancel()
    world.crash(machine, End.POWER_CUT if cut else End.KILL)
    return True


async def _flushes(hit: str, world: RunWorld, machine: Machine, event: Event, _rng: Random) -> bool:
    if not may_go_silent(world, machine, event.for_ms):
        return False
    trouble = DiskTrouble(flush_ms=event.args.get("flush_ms", 0.0), hangs=hit == "hung")
    machine.disk_troubles.append(trouble)
    await asyncio.sleep(event.for_ms / 1000)
    machine.disk_troubles.remove(trouble)
    trouble.hangs = False
    return trouble.hits[hit] > 0


async def _flips(world: RunWorld, machine: Machine, event: Event, rng: Random) -> bool:
    """Flip a bit in each closed segment of a client topic while it is read.

    Consumers and followers must detect it by the checksum of each batch. Other topics are spared: a
    coordinator that cannot load its groups stays without them until another broker is elected, as
    in Kafka. Headers are spared in tiered topics, since times and producers of a copy come from
    headers, whose checksum is not verified for that.
    """
    life = machine.life
    node = None if life is None else life.node
    if node is None or node.broker is None or not may_be_hit(world, machine):
        return False
    tiered = world.promises.configs(event.args["topic"]).get(TIERED) == "true"
    first = HEADER_BYTES if tiered else CRC_START
    trouble = DiskTrouble()
    for log in node.broker.logs.logs.values():
        if log.topic == event.args["topic"]:
            for segment in list(log.segments)[:-1]:
                # The cleaner may have left the segment empty (seed 1701).
                if segment.size_bytes:
                    trouble.flips[segment.log.path] = _checked_bit(segment, rng, first)
    machine.disk_troubles.append(trouble)
    await asyncio.sleep(event.for_ms / 1000)
    machine.disk_troubles.remove(trouble)
    return trouble.hits["flipped"] > 0


def _checked_bit(segment: Segment, rng: Random, first: int) -> tuple[int, int]:
    """Return (position, bit) of a random bit of a batch from its byte `first` on. Its checksum
    covers it; base offset and leader epoch have no checksum in any Kafka."""
    data = segment.log.pread(segment.size_bytes, 0)
    header, at = rng.choice(list(iter_batches(data)))
    return at + rng.randrange(first, header.size_bytes), 1 << rng.randrange(8)


async def _rots(world: RunWorld, machine: Machine, event: Event, rng: Random) -> bool:
    """Flip bits of indexes for good. An index only repeats the batches: each look-up must still
    find all records, at once."""
    life, files = machine.life, machine.files
    node = None if life is None else life.node
    if node is None or node.broker is None or files is None:
        return False
    logs = [one for one in node.broker.logs.logs.values() if one.topic == event.args["topic"]]
    rotten = 0
    for segment in (one for log in logs for one in list(log.segments)[:-1]):
        for index in (segment.offset_index, segment.time_index):
            size = len(files.read(index.path)) if files.exists(index.path) else 0
            for _ in range(min(size, event.args["bits"])):
                files.rot(index.path, rng.randrange(size), 1 << rng.randrange(8))
                rotten += 1
    return rotten > 0


def _draw_rot(rng: Random, shape: Shape) -> Drawn:
    topic = rng.choice([*(one.name for one in shape.topics), OFFSETS_TOPIC])
    return draw_broker(rng, shape), {"topic": topic, "bits": rng.choice((1, 4, 32)), "for_ms": 1}


def _draw_flips(rng: Random, shape: Shape) -> Drawn:
    return draw_broker(rng, shape), {"topic": rng.choice(shape.topics).name}


def _draw_slow(rng: Random, shape: Shape) -> Drawn:
    return draw_node(rng, shape), {"flush_ms": rng.choice(FLUSH_MS)}


def _draw_node(rng: Random, shape: Shape) -> tuple[str, dict[str, Any]]:
    return draw_node(rng, shape), {}


KINDS = {
    "fsync error": FaultKind(
        "disk_errors",
        "a flush fails, and what it was to save may be gone",
        _draw_fsync,
        partial(_refuses, errno.EIO),
    ),
    "disk full": FaultKind(
        "disk_errors",
        "nothing can be written for a while",
        partial(_draw, WRITES, (0, 0, 3, 20)),
        partial(_refuses, errno.ENOSPC),
    ),
    "unreadable": FaultKind(
        "disk_errors",
        "what was flushed cannot be read for a while",
        partial(_draw, ("read",), (0, 0, 3)),
        partial(_refuses, errno.EIO),
    ),
    "file error": FaultKind(
        "disk_errors",
        "some file operation fails, once or for a while",
        _draw_any,
        partial(_refuses, errno.EIO),
    ),
    "slow flush": FaultKind(
        "disk_errors", "every flush takes longer", _draw_slow, partial(_flushes, "slow")
    ),
    "hanging flush": FaultKind(
        "disk_errors", "no flush comes back for a while", _draw_node, partial(_flushes, "hung")
    ),
    "bit flips": FaultKind(
        "disk_errors",
        "a bit of each older segment of a topic is read wrongly for a while",
        _draw_flips,
        _flips,
    ),
    ROT: FaultKind(
        "disk_errors",
        "bits of the indexes of a topic's older segments flip, and stay so",
        _draw_rot,
        _rots,
    ),
}
