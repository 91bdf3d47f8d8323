"""Partition epochs created by reports of local logs (KIP-1303)."""

from __future__ import annotations

import pytest

from controller.report_epochs import EPOCHS_MAX, NONE, ReportEpochs, is_report
from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE, MetadataImage
from protocol.metadata import PartitionChangeRecord, PartitionRecord, TopicRecord

TOPIC = b"t" * 16
TOLD = [PartitionChangeRecord.ReplicaLocalLog(broker_id=1, size_bytes=5)]


def image_of(partitions: int) -> MetadataImage:
    records = [
        PartitionRecord(
            partition_id=index, topic_id=TOPIC, replicas=[1, 2], isr=[1, 2], leader=1,
            leader_epoch=0, partition_epoch=7,
        )
        for index in range(partitions)
    ]  # fmt: skip
    return replay_all(EMPTY_IMAGE, [TopicRecord(name="t", topic_id=TOPIC), *records])


def report(index: int = 0) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=index, local_logs=TOLD)


class World:
    def __init__(self, partitions: int = 1) -> None:
        self.image, self.epochs = image_of(partitions), ReportEpochs()

    def write(self, *records: PartitionChangeRecord) -> int:
        self.image = replay_all(self.image, records)
        self.epochs.note(self.image, records)
        return self.epochs.of(TOPIC, 0)


def test_the_newest_epoch_counts_if_a_report_made_it() -> None:
    world = World()
    assert world.epochs.of(TOPIC, 0) == NONE
    assert world.write(report()) == 8
    assert world.write(report()) == 9
    change = report().replace(isr=[1])
    assert world.write(change) == NONE and len(world.epochs) == 0
    assert world.write(report()) == 11
    world.epochs.clear()
    assert world.epochs.of(TOPIC, 0) == NONE


def test_in_a_batch_the_last_record_of_a_partition_counts() -> None:
    change = report().replace(isr=[1])
    assert World().write(report(), change) == NONE
    assert World().write(change, report()) == 9


@pytest.mark.parametrize(
    ("changes", "alone"),
    [
        ({}, True),
        ({"isr": [1, 2]}, False),
        ({"local_logs": None}, False),
        ({"local_logs": []}, True),
        ({"leader": 1}, False),
        ({"leader_recovery_state": 0}, False),
        ({"directories": [bytes(16)] * 2}, False),
        ({"eligible_leader_replicas": []}, False),
        ({"replicas": [1, 2]}, False),
        ({"unknown_tags": {9: b"x"}}, False),
    ],
)
def test_report_record_changes_local_logs_only(changes: dict[str, object], alone: bool) -> None:
    """P15: if the record changes anything else, an earlier proposal was not compared with that
    change."""
    assert is_report(report().replace(**changes)) is alone


def test_the_oldest_are_forgotten() -> None:
    world = World(EPOCHS_MAX + 1)
    world.write(*(report(index) for index in range(EPOCHS_MAX)))
    world.write(report(0))
    world.write(report(EPOCHS_MAX))
    assert len(world.epochs) == EPOCHS_MAX
    assert world.epochs.of(TOPIC, 0) == 9
    assert world.epochs.of(TOPIC, 1) == NONE and world.epochs.of(TOPIC, 2) == 8
