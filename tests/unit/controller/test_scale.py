"""Ten topics of a thousand partitions: the CPU time of one decision.

The bounds are tens of times the measured values, so that only another order of growth breaks them.
Measured were 7 ms to create a topic, 80 ms to fence a broker that leads a third, 70 ms to replay
that, and 25 ms to encode its 440 kB.
"""

from __future__ import annotations

import time

import pytest

from controller.brokers.registration import (
    decide_fence_silent,
    has_leaderships,
    silent_brokers,
)
from controller.decision import ControllerView
from controller.elections.cause import Cause
from controller.elections.context import BrokerChange
from controller.elections.triggers import Part, part_of_changes
from controller.elections.upkeep import decide_rebalance
from controller.topics.assignment import is_active
from controller.topics.create import decide_create_topics
from metalog.image.features import record_version
from metalog.image.replay import replay_all
from metalog.image.values import BrokerImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.metadata import PartitionChangeRecord, encode_record
from testkit.memory.controller import SESSION_TIMEOUT_MS, Cluster

TOPICS = 10
PARTITIONS = 1_000


def request(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=PARTITIONS, replication_factor=3
            )
            for name in names
        ]
    )


@pytest.fixture(scope="module")
def big() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    for number in range(TOPICS):
        view = cluster.view()
        cluster.apply(decide_create_topics(view, request(f"t{number}")).records)
    return cluster


def test_topics_are_created_in_little_time() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    started = time.process_time()
    cluster.apply(decide_create_topics(cluster.view(), request("t")).records)
    assert time.process_time() - started < 3.0
    assert len(cluster.image.topics.by_name["t"].partitions) == PARTITIONS


def test_lists_of_replicas_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    looked = 0

    def counted(broker: BrokerImage) -> bool:
        nonlocal looked
        looked += 1
        return is_active(broker)

    monkeypatch.setattr("controller.topics.assignment.is_active", counted)
    assert len(decide_create_topics(cluster.view(), request("t")).records) == PARTITIONS + 1
    orders = 6
    assert looked <= orders * 3


@pytest.mark.slow
def test_one_request_writes_no_more_than_ten_thousand_records() -> None:
    """KAFKA-14996: ten topics in one request need 10,010 records, above the limit of one
    request."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    names = [f"t{number}" for number in range(TOPICS)]
    with pytest.raises(ApiError) as refused:
        decide_create_topics(cluster.view(), request(*names))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert len(decide_create_topics(cluster.view(), request(*names[:9])).records) == 9 * 1001


def silent_broker(big: Cluster) -> ControllerView:
    """Return a view at the end of broker 1's session: it has sent no heartbeat, the image is
    unchanged."""
    for broker in (2, 3):
        big.touch(broker)
    big.advance(SESSION_TIMEOUT_MS)
    for broker in (2, 3):
        big.touch(broker)
    return big.view()


def test_fencing_a_broker_of_many_partitions_takes_little_time(big: Cluster) -> None:
    """The record limit of a request does not apply to changes that the controller starts itself."""
    view = silent_broker(big)
    assert has_leaderships(view, 1)
    started = time.process_time()
    decision = decide_fence_silent(view, silent_brokers(view), 2 * TOPICS * PARTITIONS)
    image = replay_all(view.image, decision.records)
    for record in decision.records:
        encode_record(record, record_version(type(record).__name__, view.metadata_version))
    assert time.process_time() - started < 10.0
    assert len(decision.records) == TOPICS * PARTITIONS + 1
    led = [r for r in decision.records if isinstance(r, PartitionChangeRecord) and r.leader >= 0]
    assert TOPICS * PARTITIONS / 4 < len(led) < TOPICS * PARTITIONS / 2
    partitions = [p for t in image.topics.by_id.values() for p in t.partitions.values()]
    assert all(p.leader in (2, 3) and 1 not in p.isr for p in partitions)


def test_the_regular_looks_are_cheap(big: Cluster) -> None:
    view = silent_broker(big)
    started = time.process_time()
    change = BrokerChange(joining=frozenset({2}))
    assert part_of_changes(view, change, Cause.BROKER_UNFENCED) == Part()
    assert not has_leaderships(view, 99)
    assert decide_rebalance(view).records == ()
    assert time.process_time() - started < 5.0
