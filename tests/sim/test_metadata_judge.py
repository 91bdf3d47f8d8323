"""The judge of metadata, given valid and invalid records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from metalog.image.features import ELR_VERSION, record_version
from metalog.quorum.batches import build_metadata_batch
from protocol.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from simulation.judges.metadata import MetadataTruth
from simulation.world.invariants import Violation
from testkit.memory.controller import Cluster, directory

pytestmark = pytest.mark.sim
LEVEL = 30
"""metadata.version."""


class Committed(Cluster):
    """Controllers whose committed records are judged, a batch for each decision."""

    def __init__(self, **properties: Any) -> None:
        self.truth = MetadataTruth(
            joined=lambda *_: None,
            changed=lambda *_: None,
            removed=lambda _: None,
            ended=lambda _: True,
        )
        super().__init__(**properties)

    def apply(self, records: Sequence[Any]) -> None:
        begin = self.next_offset
        super().apply(records)
        if records:
            batch = build_metadata_batch(
                [(one, record_version(type(one).__name__, LEVEL)) for one in records],
                begin,
                epoch=1,
                timestamp_ms=0,
            )
            self.truth._take("a controller", begin, self.next_offset, batch)


def last_one_fenced() -> Committed:
    """Return a leaderless partition with a fenced broker in its ISR, since ELR is off."""
    cluster = Committed()
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.state("t")[:2] == (-1, (1,))
    cluster.apply([FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
    return cluster


def part(cluster: Committed, **changes: Any) -> PartitionChangeRecord:
    topic_id = cluster.image.topics.by_name["t"].id
    return PartitionChangeRecord(partition_id=0, topic_id=topic_id, **changes)


def test_isr_member_from_before_the_feature_may_stay_through_other_changes() -> None:
    """P10: a reassignment is cancelled after the feature was switched on."""
    cluster = last_one_fenced()
    cluster.truth.moves["t", 0] = {frozenset({1})}
    cluster.apply([part(cluster, replicas=[1], directories=[directory(1)])])


def test_new_isr_member_does_not_count_as_one_that_stayed() -> None:
    """P10: once there is a leader, no fenced member may stay any more."""
    cluster = last_one_fenced()
    cluster.heartbeat(1)
    assert cluster.state("t")[:2] == (1, (1,))
    with pytest.raises(Violation, match="P10: .* fenced .1. in the ISR"):
        cluster.apply(
            [
                BrokerRegistrationChangeRecord(
                    broker_id=1,
                    broker_epoch=cluster.image.cluster.brokers[1].epoch,
                    fenced=1,
                ),
                part(cluster, leader=-1),
            ]
        )


def test_first_records_that_are_written_twice_are_found() -> None:
    """M18, KIP-1170: a new controller knows the committed records and repeats none of them."""
    cluster = Committed(metadata_version=LEVEL)
    with pytest.raises(Violation, match="M18: record 1 sets metadata.version to 30 again"):
        cluster.apply([FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)])
