"""The judge of replicas that begin behind the tier: those that may be in an ISR (P13)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from broker.replication.fetching.offset_resets import LeaderLog
from broker.replication.partition.role import ReplicaRole
from simulation.judges.changes import Changes
from simulation.judges.new_replicas import NewReplicaJudge, lineage_between
from simulation.world.invariants import Violation
from storage.files import MemoryFiles
from testkit.memory.logs import make_log

pytestmark = pytest.mark.sim

TOPIC_ID, DIRECTORY, BROKER = b"t" * 16, b"d" * 16, 1


@dataclass(eq=False)
class Replica:
    """The judge's view of a replica."""

    log: Any
    role: ReplicaRole = ReplicaRole.FOLLOWER
    node_id: int = BROKER
    topic: str = "t"
    topic_id: bytes = TOPIC_ID
    index: int = 0
    is_leader: bool = False
    leader_epoch: int = 0


class Watched:
    """A broker that is in the committed ISR of a partition."""

    def __init__(self) -> None:
        committed = SimpleNamespace(isr=[BROKER], directory_of=lambda _broker: DIRECTORY)
        topic = SimpleNamespace(partitions={0: committed})
        image = SimpleNamespace(topics=SimpleNamespace(by_id={TOPIC_ID: topic}))
        self.changes = Changes()
        self.world: Any = SimpleNamespace(
            promises=SimpleNamespace(metadata=SimpleNamespace(image=image), partitions={}),
            shape=SimpleNamespace(has_tier=True),
            changes=self.changes,
            cluster=SimpleNamespace(machines=[]),
        )
        self.judge = NewReplicaJudge(self.world)
        self.replicas: list[Replica] = []
        node = SimpleNamespace(broker=SimpleNamespace(replicas=self.replicas))
        machine = SimpleNamespace(directory_id=DIRECTORY)
        self.life: Any = SimpleNamespace(node=node, machine=machine)

    def add(self, *, begins: bool) -> Replica:
        log = SimpleNamespace(
            bounds=SimpleNamespace(bootstrapping=begins),
            failure=None,
            log_start_offset=0,
            local_log_start_offset=0,
        )
        log.epochs, log.log_end_offset = [], 0
        one = Replica(log)
        self.replicas[:] = [one]
        self.changes.looked()
        self.changes.marked.add(id(log.bounds))
        return one

    def look(self) -> None:
        self.judge.after(self.life)


def test_log_that_is_about_to_begin_is_in_no_isr() -> None:
    watched = Watched()
    watched.add(begins=True)
    with pytest.raises(Violation, match="P13: .* is in an ISR, and about to begin"):
        watched.look()


def test_a_replica_that_was_about_to_begin_and_left_is_not_the_one_that_came_later() -> None:
    """Seed 282: one reassignment was cancelled, and a later one was not."""
    watched = Watched()
    first = watched.add(begins=True)
    first.node_id = 2  # not in the ISR yet
    watched.look()
    first.node_id, first.role = BROKER, ReplicaRole.DELETED
    watched.add(begins=False)
    watched.look()


SEGMENT_AT_859 = f"/t-0/{859:020d}.log"


@pytest.mark.parametrize("was_at", [859, 0])
def test_a_log_whose_marker_a_crash_took_is_as_it_was(was_at: int) -> None:
    """S5: such a log is empty at its leader's log start, without epochs (tiered seed 326).

    It was truncated to that before it was to begin behind the tier. Without that truncation, a log
    was left half begun.
    """
    disk = MemoryFiles()
    disk.mkdirs("/t-0")
    disk.touch(SEGMENT_AT_859)
    disk.touch("/t-0/leader-epoch-checkpoint")
    disk.open("/t-0/leader-epoch-checkpoint").append(b"0\n0\n")
    watched = Watched()
    watched.life.machine.disk = disk
    one = watched.add(begins=True)
    one.node_id = 2  # in no ISR
    one.log.directory, one.log.log_end_offset = "/t-0", 859
    one.log.epochs = [] if was_at else [object()]
    watched.look()
    with nullcontext() if was_at else pytest.raises(Violation, match="^S5: .* begin at 859"):
        watched.judge.over(watched.life, lossy=True)


@pytest.mark.parametrize("log_start", [0, 28])
@pytest.mark.parametrize("lacks", [False, True])
def test_s5_epoch_before_the_log_start_of_a_leader_is_not_judged(
    log_start: int, lacks: bool
) -> None:
    """S5: a leader whose log start has moved to the offset knows no epoch before it (tiered seed
    204).

    Nor does a leader that has yet to read its epochs from the tier (316).
    """
    watched = Watched()
    one = watched.add(begins=True)
    one.node_id, one.log.epochs, one.log.log_end_offset = 2, [object()], 0
    truth = SimpleNamespace(end=40, batches={20: (20, 28, 1, 0)})
    watched.world.promises.partitions[TOPIC_ID, 0] = truth
    watched.world.promises.given_up = set()
    log = SimpleNamespace(
        log_start_offset=log_start, history=SimpleNamespace(lacks_remote_part=lacks)
    )
    leader: Any = SimpleNamespace(log=log)
    wanted: Any = SimpleNamespace(partition=one, leader_epoch=3)
    with mock.patch.object(watched.judge, "_leader_of", lambda _one: leader):
        watched.judge._hear(wanted, LeaderLog(0, 28, epoch_before=0))
    with (
        nullcontext()
        if log_start or lacks
        else pytest.raises(Violation, match="^S5: .* asks for epoch 0")
    ):
        watched.look()


def test_lineage_of_an_empty_log_is_empty() -> None:
    """S5: a new topic may be tiered and empty at the end of a run (seed 90295)."""
    assert lineage_between(make_log(), 0, 0) == []
