"""The directories of replicas before their broker moved them (KIP-858)."""

from __future__ import annotations

import pytest

from controller.directory_moves import MOVES_MAX, DirectoryMoves
from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE
from protocol.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED
from protocol.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

TOPIC = b"t" * 16
ONE, TWO, THREE = b"first directory.", b"second directory", b"third directory."


class World:
    def __init__(self, first: bytes = ONE, partitions: int = 1) -> None:
        self.image, self.moves = EMPTY_IMAGE, DirectoryMoves()
        self.register(5)
        self.write(TopicRecord(name="t", topic_id=TOPIC))
        for index in range(partitions):
            self.write(
                PartitionRecord(
                    partition_id=index, topic_id=TOPIC, replicas=[1], isr=[1], leader=1,
                    directories=[first],
                )
            )  # fmt: skip

    def write(self, *records: object) -> None:
        self.moves.note(self.image, records)  # type: ignore[arg-type]
        self.image = replay_all(self.image, records)

    def register(self, epoch: int, *directories: bytes) -> None:
        self.write(
            RegisterBrokerRecord(
                broker_id=1, broker_epoch=epoch, log_dirs=list(directories or (ONE, TWO, THREE))
            )
        )

    def move(self, *places: bytes, index: int = 0) -> None:
        """Move the replicas in one batch."""
        change = PartitionChangeRecord(topic_id=TOPIC, partition_id=index)
        self.write(*(change.replace(directories=[place]) for place in places))

    def was_in(self, index: int = 0) -> set[bytes]:
        broker = self.image.cluster.brokers[1]
        return {d for d in (ONE, TWO, THREE) if self.moves.was_in(TOPIC, index, broker, d)}


@pytest.mark.parametrize("batches", [[(TWO,), (THREE,)], [(TWO, THREE)]], ids=["two", "one"])
def test_move_remembers_every_directory_before(batches: list[tuple[bytes, ...]]) -> None:
    world = World()
    assert world.was_in() == set()
    for places in batches:
        world.move(*places)
    assert world.was_in() == {ONE, TWO}


def test_move_counts_under_the_broker_epoch_in_which_it_was_made() -> None:
    """P16: another process may have another disk under the same directory id."""
    world = World()
    world.move(TWO)
    world.register(5)
    assert world.was_in() == {ONE}, "the same process"
    world.register(9)
    assert world.was_in() == set()
    world.move(THREE)
    assert world.was_in() == {TWO}


@pytest.mark.parametrize("first", [DIRECTORY_UNASSIGNED, DIRECTORY_LOST, b"never registered"])
def test_first_report_is_no_move(first: bytes) -> None:
    world = World(first)
    world.move(ONE)
    assert len(world.moves) == 0


def test_report_from_a_failed_directory_is_no_move() -> None:
    """A replica in another directory after a failure may be a new one, without the records."""
    world = World()
    world.write(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, log_dirs=[TWO, THREE]))
    world.move(TWO)
    assert world.was_in() == set()


def test_moves_are_bounded_and_end_with_the_leadership() -> None:
    world = World(partitions=MOVES_MAX + 1)
    for index in range(MOVES_MAX + 1):
        world.move(TWO, index=index)
    assert len(world.moves) == MOVES_MAX
    assert (world.was_in(0), world.was_in(1)) == (set(), {ONE})
    world.moves.clear()
    assert len(world.moves) == 0


def test_records_of_unknown_partitions_are_passed_over() -> None:
    world = World()
    record = PartitionChangeRecord(topic_id=b"u" * 16, partition_id=0, directories=[TWO])
    world.moves.note(world.image, [record])
    assert len(world.moves) == 0
