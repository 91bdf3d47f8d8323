"""The judge of leader hints, which objects to breaches of P24 only."""

from __future__ import annotations

import pytest

from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE, MetadataImage
from protocol.metadata import (
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from simulation.judges.leader_hints import Named, judge_hint
from simulation.world.invariants import Violation

pytestmark = pytest.mark.sim

TOPIC = bytes(15) + b"\x01"
KEY = (TOPIC, 0)
LED_BY_5 = replay_all(
    EMPTY_IMAGE,
    [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        *(
            RegisterBrokerRecord(
                broker_id=number,
                incarnation_id=bytes(15) + bytes([number]),
                broker_epoch=number,
                end_points=[
                    RegisterBrokerRecord.BrokerEndpoint(
                        name="PLAINTEXT", host=f"node-{number}", port=9092, security_protocol=0
                    )
                ],
                fenced=False,
            )
            for number in (4, 5)
        ),
        TopicRecord(name="t", topic_id=TOPIC),
        PartitionRecord(
            topic_id=TOPIC,
            partition_id=0,
            replicas=[4, 5],
            isr=[4, 5],
            leader=5,
            leader_epoch=7,
            partition_epoch=9,
        ),
    ],
)
FENCED_5 = replay_all(LED_BY_5, [FenceBrokerRecord(id=5, epoch=5)])
GONE_5 = replay_all(FENCED_5, [UnregisterBrokerRecord(broker_id=5, broker_epoch=5)])
LED_BY_4 = replay_all(
    LED_BY_5, [PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=4, isr=[4])]
)
NAMED = Named(5, 7, "node-5", 9092)


@pytest.mark.parametrize(
    ("named", "images", "said"),
    [
        (NAMED, [FENCED_5], "it is fenced"),
        (NAMED, [GONE_5], "the broker is not registered"),
        (NAMED, [LED_BY_4], "the leader is 4 in epoch 8"),
        (NAMED._replace(epoch=6), [LED_BY_5], "the leader is 5 in epoch 7"),
        (NAMED._replace(port=9093), [LED_BY_5], "it is at"),
        (NAMED, [FENCED_5, LED_BY_4], "it is fenced; the leader is 4"),
        (NAMED, [EMPTY_IMAGE], "the partition does not exist"),
        (NAMED, [], "no metadata image"),
    ],
)
def test_no_image_allows_it(named: Named, images: list[MetadataImage], said: str) -> None:
    with pytest.raises(Violation, match=f"P24.*{said}"):
        judge_hint("broker 4", KEY, named, images)


@pytest.mark.parametrize("images", [[LED_BY_5], [LED_BY_5, LED_BY_4], [EMPTY_IMAGE, LED_BY_5]])
def test_one_image_is_enough(images: list[MetadataImage]) -> None:
    judge_hint("broker 4", KEY, NAMED, images)
