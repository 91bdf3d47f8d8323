"""Snapshots and records at an older `metadata.version`, which omit newer fields."""

from __future__ import annotations

import pytest

from metalog.image.features import METADATA_VERSION, record_version
from metalog.image.replay import replay_all
from metalog.image.snapshot import fit_record, image_from_records, image_to_records
from metalog.image.values import EMPTY_IMAGE
from protocol.metadata import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

V3_9_IV0, V4_0_IV0, V4_0_IV1 = 21, 22, 23
TOPIC = b"t" * 16
SETS = {"eligible_leader_replicas": [2], "last_known_elr": [3]}


@pytest.mark.parametrize("level", [V3_9_IV0, V4_0_IV0, V4_0_IV1])
def test_snapshots_below_4_0_iv1_carry_no_eligible_leader_replicas(level: int) -> None:
    """KIP-966: readers at such a level would not know the fields, and ELR is off below 4.0-IV1."""
    image = replay_all(
        EMPTY_IMAGE,
        [
            FeatureLevelRecord(name=METADATA_VERSION, feature_level=level),
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=[1, 2, 3], isr=[1], **SETS),
        ],
    )
    lost: list[str] = []
    records = [record for record, _ in image_to_records(image, lost.append)]
    (partition,) = (record for record in records if type(record) is PartitionRecord)
    read = image_from_records(records).topics.by_id[TOPIC].partitions[0]
    if level >= V4_0_IV1:
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([2], [3])
        assert (read.elr, read.last_known_elr, lost) == ((2,), (3,), [])
    else:
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == (None, None)
        assert (read.elr, read.last_known_elr) == ((), ())
        version = record_version("PartitionRecord", level)
        fields = "['eligible_leader_replicas', 'last_known_elr']"
        assert lost == [f"PartitionRecord version {version} cannot contain {fields}"]


@pytest.mark.parametrize("kind", [PartitionRecord, PartitionChangeRecord])
def test_records_below_4_0_iv1_carry_none_either(
    kind: type[PartitionRecord] | type[PartitionChangeRecord],
) -> None:
    record = kind(topic_id=TOPIC, partition_id=0, isr=[1], **SETS)
    old = fit_record(record, record_version(kind.__name__, V4_0_IV0))
    assert (old.eligible_leader_replicas, old.last_known_elr, old.isr) == (None, None, [1])
    assert fit_record(record, record_version(kind.__name__, V4_0_IV1)) == record
