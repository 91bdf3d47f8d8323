"""Targets of events: a node, or a role that is resolved when the event is due.

A target is a text: `node 3`, `broker 2` or `controller 1` (the n-th of its kind, modulo their
number), `active controller`, `leader of t0-1`, `follower of t0-1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from metalog.image.values import PartitionImage
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine


def draw_node(rng: Random, shape: Shape) -> str:
    """Draw any node, by number or by role; leaders are hit more often."""
    number = rng.randint(1, 5)
    return rng.choice([f"node {number}", draw_controller(rng, shape), draw_broker(rng, shape)])


def draw_controller(rng: Random, shape: Shape) -> str:
    return rng.choice(["active controller", f"controller {rng.randint(1, 5)}"])


def draw_broker(rng: Random, shape: Shape) -> str:
    topic = rng.choice(shape.topics)
    partition = f"{topic.name}-{rng.randrange(topic.partitions)}"
    return rng.choice(
        [f"leader of {partition}", f"follower of {partition}", f"broker {rng.randint(1, 5)}"]
    )


def resolve(world: RunWorld, target: str) -> Machine | None:
    """Return the machine that the target means now, else None."""
    kind, _, which = target.partition(" ")
    if target == "active controller":
        return next((one for one in world.controllers if is_active(one)), None)
    if kind in ("leader", "follower"):
        return _replica(world, kind, which.removeprefix("of "))
    groups = {
        "node": world.cluster.machines,
        "broker": world.brokers,
        "controller": world.controllers,
    }
    machines = groups[kind]
    return machines[(int(which) - 1) % len(machines)]


def is_active(machine: Machine) -> bool:
    """Return whether this controller is alive and leads the quorum, as far as it knows."""
    life = machine.life
    if life is None or not life.alive or life.node is None:
        return False
    quorum = life.node.quorum
    return quorum is not None and quorum.is_started and quorum.is_leader


def _replica(world: RunWorld, kind: str, partition: str) -> Machine | None:
    image = partition_image(world, partition)
    if image is None:
        return None
    ids = [image.leader] if kind == "leader" else [b for b in image.replicas if b != image.leader]
    return next((one for one in world.brokers if one.node_id in ids), None)


def partition_image(world: RunWorld, partition: str) -> PartitionImage | None:
    """Return a partition, by topic and number, as the controllers have committed it, else None."""
    name, _, index = partition.rpartition("-")
    for topic in world.promises.metadata.image.topics.by_id.values():
        if topic.name == name:
            return topic.partitions.get(int(index))
    return None
