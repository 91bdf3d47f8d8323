"""Nodes by themselves: no fatal failure, valid logs, and equal metadata in the end (P5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from broker.controller_link.lifecycle_sender import RegistrationLost
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.values import NO_LEADER
from simulation.judges.judge import Judge
from simulation.world.disks import is_disk_fault
from simulation.world.invariants import require

if TYPE_CHECKING:
    from kraftbox.node import Node
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife


KEPT_NOT = "The disk lost data"
"""The error of a node that stops since its metadata log has rotted; file and offset precede it."""


class NodeJudge(Judge):
    """Judges fatal failures, and waits until all nodes have the same metadata."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._followed: set[Node] = set()

    def after(self, life: NodeLife) -> None:
        """Raise Violation if a node failed for another reason than a failed file call of
        its disk."""
        node = life.node
        if node is None:
            return
        if node not in self._followed:
            self._followed.add(node)
            node.failed.add_done_callback(lambda _: self._world.changes.marked.add(id(node)))
        if node.failed.done():
            name, error = node.failed.result()
            # A delayed request to unregister it may be executed when the broker is back.
            forgotten = life.machine.node_id in self._world.unregistered
            allowed = (
                is_disk_fault(error)
                or (forgotten and isinstance(error, RegistrationLost))
                or (life.machine.lost_metadata and KEPT_NOT in str(error))
            )
            require(allowed, f"F: {life} failed in {name}: {error!r}")

    def unsettled(self) -> str | None:
        """Return a node that lacks metadata (P26), else None."""
        promises = self._world.promises
        for machine in self._world.cluster.machines:
            life = machine.life
            loader = None if life is None or life.node is None else life.node.loader
            if loader is None or loader.image.topics != promises.metadata.image.topics:
                return f"P26: {machine.host} has not caught up with the metadata"
        return self._unknown_directory()

    def _unknown_directory(self) -> str | None:
        """P26, KIP-858: at a level that has log directories, the controllers know the directory of
        each replica whose partition is led. Otherwise they would not notice an empty disk (P11)."""
        image = self._world.promises.metadata.image
        if (image.metadata_version or 0) < DIRECTORY_ASSIGNMENT_LEVEL:
            return None
        for topic in image.topics.by_id.values():
            for index, one in topic.partitions.items():
                for replica in one.replicas if one.leader != NO_LEADER else ():
                    broker = image.cluster.brokers.get(replica)
                    if broker is None or one.directory_of(replica) not in broker.directories:
                        return f"P26: the directory of {topic.name}-{index} on {replica} is unknown"
        return None

    def missing(self) -> str | None:
        """Return the same when clients have stopped."""
        return self.unsettled()
