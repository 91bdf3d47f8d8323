"""The context of one decision's elections: rules per topic, candidates and eligibility per
partition."""

from __future__ import annotations

from typing import Any

import pytest

from controller.brokers.directories import decide_assign_directories
from controller.configs.topic_settings import RecoveryStrategy
from controller.decision import ControllerView
from controller.elections import context
from controller.elections.cause import Cause
from controller.elections.context import BrokerChange, ElectionContext
from controller.elections.election import Wish
from controller.elections.eligibility import (
    ElectionOrder,
    Ineligible,
    PartitionReplicas,
    Reason,
    assignment_order,
)
from controller.elections.partition_change import Target
from metalog.image.features import ELR_VERSION
from metalog.image.values import ElectedAs, TopicImage
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest as Request
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from testkit.memory.controller import Cluster, directory, registration

FIRST, SECOND = b"first directory.", b"second directory"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2, 3])
    cluster.create_topic(
        "u", [1, 2, 3], min_insync_replicas="2", unclean_leader_election_enable="true"
    )
    return cluster


def topic(cluster: Cluster, name: str) -> TopicImage:
    return cluster.image.topics.by_name[name]


def test_rules_are_the_topics(cluster: Cluster) -> None:
    elections = ElectionContext(cluster.view())
    t, u = (elections.rules(topic(cluster, name)) for name in "tu")
    assert (t.safety.min_isr, t.safety.strategy) == (1, RecoveryStrategy.BALANCED)
    assert (u.safety.min_isr, u.safety.strategy) == (2, RecoveryStrategy.AGGRESSIVE)
    assert (t.election, u.election) == (Wish.ONLINE, Wish.UNCLEAN)
    assert elections.rules(topic(cluster, "u")) is u


def test_each_topic_has_its_election_order(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reversed_order(
        partition: PartitionReplicas, replicas: tuple[int, ...], now_ms: int
    ) -> tuple[int, ...]:
        return tuple(reversed(replicas))

    def order_of(view: ControllerView, topic: TopicImage) -> ElectionOrder:
        return reversed_order if topic.name == "u" else assignment_order

    monkeypatch.setattr(context, "election_order", order_of)
    elections = ElectionContext(cluster.view(), BrokerChange(leaving=frozenset({1})))
    led = {}
    for name in "tu":
        partition = topic(cluster, name).partitions[0]
        change = elections.change_partition(
            topic(cluster, name), 0, partition, Cause.BROKER_FENCED, election=Wish.PREFERRED
        )
        assert change is not None
        led[name] = (
            elections.candidates(topic(cluster, name), 0, partition)[0],
            change.elected.leader,
        )
    assert led == {"t": (1, 2), "u": (3, 3)}


def test_election_context_applies_the_broker_change_to_eligibility(cluster: Cluster) -> None:
    elections = ElectionContext(cluster.view(), BrokerChange(leaving=frozenset({1})))
    partition = topic(cluster, "t").partitions[0]
    eligibility_of = elections.eligibility_in(topic(cluster, "t"), 0, partition)
    assert eligibility_of(1) == Ineligible(Reason.LEAVING)


def with_elr() -> Cluster:
    """Return a cluster with ELR; broker 1 has two directories, and its replica of t is in the
    second."""
    cluster = Cluster(min_insync_replicas="2")
    elr = BrokerRegistrationRequest.Feature(name=ELR_VERSION, max_supported_version=1)
    cluster.apply([FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
    for broker in (1, 2, 3):
        places = [FIRST, SECOND] if broker == 1 else [directory(broker)]
        features = [*registration(broker).features, elr]
        cluster.register(broker, log_dirs=places, features=features)
        cluster.heartbeat(broker)
    cluster.create_topic("t", [1, 2])
    return cluster


def test_with_elr_a_replica_in_a_directory_that_failed_is_not_elected_by_what_comes_next() -> None:
    """P11: the broker is unfenced and in the ELR, but the directory with its log has failed."""
    cluster = with_elr()
    places = [
        Request.DirectoryData(
            id=SECOND,
            topics=[
                Request.TopicData(
                    topic_id=topic(cluster, "t").id,
                    partitions=[Request.PartitionData(partition_index=0)],
                )
            ],
        )
    ]
    epoch = cluster.image.cluster.brokers[1].epoch
    request = Request(broker_id=1, broker_epoch=epoch, directories=places)
    cluster.run(lambda view: decide_assign_directories(view, request))
    cluster.fence(2)
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (1, (2,))
    cluster.heartbeat(1, offline_log_dirs=[SECOND])
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1, 2))
    # any other event: another broker is fenced and unfenced, and its replica's partition changes
    cluster.fence(3)
    cluster.heartbeat(3)
    assert cluster.partition("t").leader == -1
    change = ElectionContext(cluster.view()).change_partition(
        topic(cluster, "t"), 0, cluster.partition("t"), Cause.MIN_ISR
    )
    assert change is None
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1,))
    assert ElectedAs.ELR.value == 3


STATES: dict[str, dict[str, Any]] = {
    "as made": {},
    "one out of sync": {"isr": [1, 3]},
    "alone": {"isr": [1]},
    "with an ELR": {"isr": [1], "eligible_leader_replicas": [3, 2]},
    "with a last known one": {"isr": [1], "last_known_elr": [2]},
    "led by another": {"leader": 3},
    "without leader": {"leader": -1, "isr": [], "eligible_leader_replicas": [2]},
    "in other directories": {"directories": [FIRST, FIRST, SECOND]},
    "recovering": {"leader_recovery_state": 1},
    "moving": {"replicas": [1, 2, 3, 4], "directories": [FIRST] * 4, "adding_replicas": [4]},
    "leaving": {"removing_replicas": [3]},
}


@pytest.mark.parametrize("leaving", [1, 3])
def test_partitions_of_all_states_are_changed_as_each_would_be_alone(leaving: int) -> None:
    """A cached decision holds only for partitions of the same topic in the same state."""
    cluster = Cluster(elr=True)
    cluster.start(1, 2, 3, 4)
    rows = [*STATES.values(), *STATES.values()]
    for name, min_isr in (("t", "1"), ("u", "2")):
        cluster.create_topic(name, *([1, 2, 3] for _ in rows), min_insync_replicas=min_isr)
        topic_id = topic(cluster, name).id
        cluster.apply(
            [
                PartitionChangeRecord(topic_id=topic_id, partition_id=index, **fields)
                for index, fields in enumerate(rows)
                if fields
            ]
        )
    view, change = cluster.view(), BrokerChange(leaving=frozenset({leaving}))
    together = ElectionContext(view, change)
    changed = 0
    for name in "tu":
        for index, partition in topic(cluster, name).partitions.items():
            isr = tuple(r for r in partition.isr if r != leaving)
            for target in (Target(isr=isr), Target()):
                args = topic(cluster, name), index, partition, Cause.BROKER_FENCED
                alone = ElectionContext(view, change).change_partition(*args, target=target)
                assert together.change_partition(*args, target=target) == alone, (name, index)
                changed += alone is not None
    assert changed > len(rows)


def test_change_with_an_order_per_partition_is_decided_per_partition(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_index(
        partition: PartitionReplicas, replicas: tuple[int, ...], now_ms: int
    ) -> tuple[int, ...]:
        return replicas if partition.partition_id else replicas[::-1]

    monkeypatch.setattr(context, "election_order", lambda view, topic: by_index)
    cluster.create_topic("v", [1, 2, 3], [1, 2, 3])
    elections = ElectionContext(cluster.view(), BrokerChange(leaving=frozenset({1})))
    leaders = []
    for index, partition in sorted(topic(cluster, "v").partitions.items()):
        change = elections.change_partition(
            topic(cluster, "v"), index, partition, Cause.BROKER_FENCED, target=Target(isr=(2, 3))
        )
        assert change is not None
        leaders.append(change.record.leader)
    assert leaders == [3, 2]
