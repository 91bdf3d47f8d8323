"""A fault of `__remote_log_metadata`: one of its partitions loses its end on all of its replicas.

All brokers that have the partition are killed at the same time. While they are off, the last
batches of that partition are cut from their disks, as a power cut takes what was not flushed. All
other files stay, so no other promise is given up: `Promises.lost_end` says from then on what of the
partition is committed, and the judge of tiers what of it was lost (`judges/tier_losses.py`).
"""

from __future__ import annotations

import asyncio
import posixpath
from typing import TYPE_CHECKING

from protocol.batch.header import iter_batches
from protocol.topic_name import REMOTE_LOG_METADATA_TOPIC
from simulation.faults.elections import up_again
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.process import may_be_hit
from simulation.world.cluster import End
from storage.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    decode_epochs,
    decode_offsets,
    encode_epochs,
    encode_offsets,
)

if TYPE_CHECKING:
    from random import Random

    from simulation.event import Event
    from simulation.judges.committed import PartitionTruth
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine
    from simulation.world.invariants import Key
    from storage.files import Files

RECORDS = (1, 2, 5, 20)
BACK_MS = (1, 300, 2_000)
ROOT = "/data"


def _draw(rng: Random, _shape: Shape) -> tuple[str, Args]:
    args: Args = {
        "which": rng.randrange(100),
        "records": rng.choice(RECORDS),
        "back_ms": rng.choice(BACK_MS),
    }
    return "the tier's metadata topic", args


async def _lose_end(world: RunWorld, event: Event, _rng: Random) -> bool:
    found = _partition(world, event.args["which"])
    if found is None or world.promises.ends.lossy or world.swapped:
        return False
    key, truth, machines = found
    keep = max(0, truth.end - event.args["records"])
    off: list[Machine] = []
    for machine in machines:
        is_up = machine.life is not None and machine.life.alive
        if not is_up or machine.node_id in world.busy or not may_be_hit(world, machine):
            break
        world.busy.add(machine.node_id)
        world.crash(machine, End.KILL)
        off.append(machine)
    lost = len(off) == len(machines) and truth.end > keep
    if lost:
        folder = posixpath.join(ROOT, truth.name)
        world.promises.lost_end(key, max(cut_end(one, folder, keep) for one in off))
    await asyncio.sleep(min(event.args["back_ms"], event.for_ms) / 1000)
    await asyncio.gather(*(up_again(world, machine) for machine in off))
    return lost


def _partition(world: RunWorld, which: int) -> tuple[Key, PartitionTruth, list[Machine]] | None:
    """A partition of the topic that has records, and the machines of its replicas."""
    image = world.promises.metadata.image
    topic = next(
        (one for one in image.topics.by_id.values() if one.name == REMOTE_LOG_METADATA_TOPIC), None
    )
    if topic is None:
        return None
    index = which % len(topic.partitions)
    key = (topic.id, index)
    truth = world.promises.partitions.get(key)
    if truth is None or not truth.end:
        return None
    replicas = topic.partitions[index].replicas
    return key, truth, [world.cluster.machines[one - 1] for one in replicas]


def cut_end(machine: Machine, folder: str, keep: int) -> int:
    """Cut a partition's log to the batches below `keep` on a machine that is off.

    Returns:
        Where the log ends now.
    """
    files = machine.files
    if files is None or not files.isdir(folder):
        return 0
    hook, files.on_op = files.on_op, None
    try:
        end = _cut_segments(files, folder, keep)
        _cut_checkpoints(files, folder, end)
    finally:
        files.on_op = hook
    return end


def _cut_segments(files: Files, folder: str, keep: int) -> int:
    """Indexes and producer snapshots are made again when the log recovers."""
    end = 0
    for name in sorted(files.listdir(folder)):
        stem, _, kind = name.partition(".")
        path = posixpath.join(folder, name)
        if kind == "log":
            size = 0
            for header, at in iter_batches(files.read(path)):
                if header.base_offset < keep:
                    size, end = at + header.size_bytes, header.next_offset
            file = files.open(path)
            file.truncate(size)
            file.close()
            if not size and int(stem):
                files.unlink(path)
        elif stem.isdigit():
            files.unlink(path)
    return end


def _cut_checkpoints(files: Files, folder: str, end: int) -> None:
    topic, _, number = posixpath.basename(folder).rpartition("-")
    path = posixpath.join(folder, LEADER_EPOCH_CHECKPOINT)
    if files.exists(path):
        epochs = [one for one in decode_epochs(files.read(path)) if one.start_offset < end]
        files.write_atomic(path, encode_epochs(epochs))
    for name, most in ((HIGH_WATERMARK_CHECKPOINT, end), (RECOVERY_POINT_CHECKPOINT, 0)):
        path = posixpath.join(ROOT, name)
        offsets = decode_offsets(files.read(path)) if files.exists(path) else {}
        if (topic, int(number)) in offsets:
            offsets[topic, int(number)] = min(most, offsets[topic, int(number)])
            files.write_atomic(path, encode_offsets(offsets))


KINDS = {
    "tier topic cut": OperatorKind(
        "tier_topic",
        "a partition of the tier's metadata topic loses its end on all of its replicas",
        _draw,
        _lose_end,
        lambda shape: shape.has_tier,
    ),
}
