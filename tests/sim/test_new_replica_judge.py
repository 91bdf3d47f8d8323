"""The judge of replicas that begin behind the tier: which of them an ISR may have (P13)."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from broker.replication.replica_role import ReplicaRole
from simulation.judges.changes import Changes
from simulation.judges.new_replicas import NewReplicaJudge
from simulation.world.invariants import Violation

pytestmark = pytest.mark.sim

TOPIC_ID, DIRECTORY, BROKER = b"t" * 16, b"d" * 16, 1


@dataclass(eq=False)
class Replica:
    """What the judge sees of one."""

    log: Any
    role: ReplicaRole = ReplicaRole.FOLLOWER
    node_id: int = BROKER
    topic: str = "t"
    topic_id: bytes = TOPIC_ID
    index: int = 0
    is_leader: bool = False
    leader_epoch: int = 0


class Watched:
    """A broker that is in the ISR of a partition, by what is committed."""

    def __init__(self) -> None:
        committed = SimpleNamespace(isr=[BROKER], directory_of=lambda _broker: DIRECTORY)
        topic = SimpleNamespace(partitions={0: committed})
        image = SimpleNamespace(topics=SimpleNamespace(by_id={TOPIC_ID: topic}))
        self.changes = Changes()
        world: Any = SimpleNamespace(
            promises=SimpleNamespace(metadata=SimpleNamespace(image=image), partitions={}),
            shape=SimpleNamespace(has_tier=True),
            changes=self.changes,
            cluster=SimpleNamespace(machines=[]),
        )
        self.judge = NewReplicaJudge(world)
        self.replicas: list[Replica] = []
        node = SimpleNamespace(broker=SimpleNamespace(replicas=self.replicas))
        machine = SimpleNamespace(directory_id=DIRECTORY)
        self.life: Any = SimpleNamespace(node=node, machine=machine)

    def add(self, *, begins: bool) -> Replica:
        log = SimpleNamespace(
            bootstrapping=begins, failure=None, log_start_offset=0, local_log_start_offset=0
        )
        one = Replica(log)
        self.replicas[:] = [one]
        self.changes.looked()
        self.changes.marked.add(id(log))
        return one

    def look(self) -> None:
        self.judge.after(self.life)


def test_what_is_about_to_begin_is_in_no_isr() -> None:
    watched = Watched()
    watched.add(begins=True)
    with pytest.raises(Violation, match="P13: .* is in an ISR, and about to begin"):
        watched.look()


def test_a_replica_that_was_about_to_begin_and_left_is_not_the_one_that_came_later() -> None:
    """Seed 282: a reassignment that was cancelled, and another that was not."""
    watched = Watched()
    first = watched.add(begins=True)
    first.node_id = 2  # not in the ISR yet
    watched.look()
    first.node_id, first.role = BROKER, ReplicaRole.DELETED
    watched.add(begins=False)
    watched.look()
