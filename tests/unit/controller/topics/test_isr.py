from __future__ import annotations

import pytest

from controller.topics.isr import IsrAnswer, decide_alter_partition
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from testkit.memory.controller import Cluster

Data = AlterPartitionRequest.PartitionData
State = AlterPartitionRequest.BrokerState
Topic = AlterPartitionRequest.TopicData


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3, 4)
    cluster.create_topic("t", [1, 2, 3])
    return cluster


def proposal(cluster: Cluster, *isr: int, **fields: int) -> AlterPartitionRequest.PartitionData:
    partition = cluster.partition("t")
    brokers = cluster.image.cluster.brokers
    values = {
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        **fields,
    }
    states = [State(broker_id=b, broker_epoch=brokers[b].epoch if b in brokers else 1) for b in isr]
    return Data(partition_index=0, new_isr_with_epochs=states, **values)


def alter(
    cluster: Cluster,
    *proposals: AlterPartitionRequest.PartitionData,
    broker_id: int = 1,
    topic_id: bytes | None = None,
) -> list[IsrAnswer]:
    request = AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.cluster.brokers[broker_id].epoch,
        topics=[
            Topic(
                topic_id=topic_id or cluster.image.topics.by_name["t"].id,
                partitions=list(proposals),
            )
        ],
    )
    (outcome,) = cluster.run(lambda view: decide_alter_partition(view, request))
    return list(outcome.partitions)


def test_shrink_and_expand(cluster: Cluster) -> None:
    (outcome,) = alter(cluster, proposal(cluster, 1, 2))
    assert outcome.error is ErrorCode.NONE
    assert outcome.state == cluster.partition("t")
    assert cluster.state("t") == (1, (1, 2), 0, 1)
    alter(cluster, proposal(cluster, 1, 2, 3))
    assert cluster.state("t") == (1, (1, 2, 3), 0, 2)


def test_the_same_isr_moves_the_partition_epoch_only(cluster: Cluster) -> None:
    (outcome,) = alter(cluster, proposal(cluster, 1, 2, 3))
    assert outcome.error is ErrorCode.NONE
    assert cluster.state("t") == (1, (1, 2, 3), 0, 1)


def test_version_2_names_no_epochs(cluster: Cluster) -> None:
    partition = cluster.partition("t")
    data = Data(
        partition_index=0,
        new_isr=[1, 3],
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    alter(cluster, data)
    assert cluster.state("t")[1] == (1, 3)


def test_p15_compare_and_set(cluster: Cluster) -> None:
    alter(cluster, proposal(cluster, 1, 2))
    cases = [
        (proposal(cluster, 1, partition_epoch=0), ErrorCode.INVALID_UPDATE_VERSION),
        # KAFKA-14154: an epoch ahead means that this controller is behind.
        (proposal(cluster, 1, partition_epoch=9), ErrorCode.NOT_CONTROLLER),
        (proposal(cluster, 1, leader_epoch=9), ErrorCode.NOT_CONTROLLER),
        (proposal(cluster, 1, leader_epoch=-1), ErrorCode.FENCED_LEADER_EPOCH),
    ]
    before = cluster.partition("t")
    for wanted, code in cases:
        assert [o.error for o in alter(cluster, wanted)] == [code]
        assert cluster.partition("t") is before


def test_a_repeated_proposal_changes_nothing_twice(cluster: Cluster) -> None:
    """KAFKA-14144: a leader that lost the first answer repeats its proposal.

    The reply is that its partition epoch is old; the leader finds its proposal in the metadata log.
    """
    wanted = proposal(cluster, 1, 2)
    assert [o.error for o in alter(cluster, wanted)] == [ErrorCode.NONE]
    after = cluster.partition("t")
    assert [o.error for o in alter(cluster, wanted)] == [ErrorCode.INVALID_UPDATE_VERSION]
    assert cluster.partition("t") is after
    assert after.isr == (1, 2)


def test_the_first_reason_counts(cluster: Cluster) -> None:
    """A deposed leader gets FENCED_LEADER_EPOCH, whatever else is wrong with its proposal."""
    old = proposal(cluster, 1, 9, partition_epoch=-1)
    cluster.fence(1)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 2
    assert [o.error for o in alter(cluster, old)] == [ErrorCode.FENCED_LEADER_EPOCH]
    ahead = proposal(cluster, 1, 9, partition_epoch=99, leader_epoch=0)
    assert [o.error for o in alter(cluster, ahead)] == [ErrorCode.NOT_CONTROLLER]
    stale = proposal(cluster, 9, partition_epoch=0)
    assert [o.error for o in alter(cluster, stale, broker_id=2)] == [
        ErrorCode.INVALID_UPDATE_VERSION
    ]


@pytest.mark.parametrize(
    ("isr", "code"),
    [
        ((2, 3), ErrorCode.INVALID_REQUEST),
        ((), ErrorCode.INVALID_REQUEST),
        ((1, 1), ErrorCode.INVALID_REQUEST),
        ((1, 4), ErrorCode.INVALID_REQUEST),
        ((1, 9), ErrorCode.INVALID_REQUEST),
    ],
)
def test_impossible_isrs(cluster: Cluster, isr: tuple[int, ...], code: ErrorCode) -> None:
    assert [o.error for o in alter(cluster, proposal(cluster, *isr))] == [code]


def test_not_the_leader(cluster: Cluster) -> None:
    (outcome,) = alter(cluster, proposal(cluster, 1, 2), broker_id=2)
    assert outcome.error is ErrorCode.INVALID_REQUEST


def test_unknown_topics_and_partitions(cluster: Cluster) -> None:
    (outcome,) = alter(cluster, proposal(cluster, 1), topic_id=b"x" * 16)
    assert outcome.error is ErrorCode.UNKNOWN_TOPIC_ID
    other = proposal(cluster, 1)
    other.partition_index = 7
    (outcome,) = alter(cluster, other)
    assert outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestIneligible:
    """Bug 10 (KAFKA-13916, KAFKA-14617): an ineligible broker cannot join an ISR."""

    def test_a_fenced_broker(self, cluster: Cluster) -> None:
        cluster.fence(3)
        (outcome,) = alter(cluster, proposal(cluster, 1, 2, 3))
        assert outcome.error is ErrorCode.INELIGIBLE_REPLICA

    def test_a_broker_that_shuts_down(self, cluster: Cluster) -> None:
        cluster.create_topic("u", [3])
        cluster.heartbeat(3, want_shut_down=True)
        assert cluster.state("t")[1] == (1, 2)
        (outcome,) = alter(cluster, proposal(cluster, 1, 2, 3))
        assert outcome.error is ErrorCode.INELIGIBLE_REPLICA

    def test_an_earlier_life_of_a_broker(self, cluster: Cluster) -> None:
        alter(cluster, proposal(cluster, 1, 2))
        stale = proposal(cluster, 1, 2, 3)
        cluster.fence(3)
        cluster.register(3, life=2)
        cluster.heartbeat(3)
        (outcome,) = alter(cluster, stale)
        assert outcome.error is ErrorCode.INELIGIBLE_REPLICA
        (outcome,) = alter(cluster, proposal(cluster, 1, 2, 3))
        assert outcome.error is ErrorCode.NONE

    def test_an_unregistered_broker(self, cluster: Cluster) -> None:
        brokers = cluster.image.cluster.brokers
        wanted = proposal(cluster, 1, 2, 3)
        cluster.image = cluster.image._replace(
            cluster=cluster.image.cluster._replace(brokers=brokers.delete(3))
        )
        (outcome,) = alter(cluster, wanted)
        assert outcome.error is ErrorCode.INELIGIBLE_REPLICA


def test_p16_a_stale_broker_epoch_is_refused_as_a_whole(cluster: Cluster) -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=0)
    with pytest.raises(ApiError) as refusal:
        cluster.run(lambda view: decide_alter_partition(view, request))
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_two_proposals_for_one_partition(cluster: Cluster) -> None:
    outcomes = alter(cluster, proposal(cluster, 1, 2), proposal(cluster, 1))
    assert [o.error for o in outcomes] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert cluster.state("t") == (1, (1, 2), 0, 1)


class TestRecovery:
    """KIP-704: the leader recovery state."""

    def make_recovering(self, cluster: Cluster) -> None:
        topic_id = cluster.image.topics.by_name["t"].id
        cluster.apply(
            [
                PartitionChangeRecord(
                    partition_id=0, topic_id=topic_id, isr=[1], leader=1, leader_recovery_state=1
                )
            ]
        )

    def test_recovered(self, cluster: Cluster) -> None:
        self.make_recovering(cluster)
        (outcome,) = alter(cluster, proposal(cluster, 1))
        assert outcome.state is not None
        assert outcome.state.recovery_state == 0
        assert cluster.state("t") == (1, (1,), 1, 2)

    def test_a_leader_that_recovers_is_alone(self, cluster: Cluster) -> None:
        self.make_recovering(cluster)
        (outcome,) = alter(cluster, proposal(cluster, 1, 2, leader_recovery_state=1))
        assert outcome.error is ErrorCode.INVALID_REQUEST
        (outcome,) = alter(cluster, proposal(cluster, 1, leader_recovery_state=1))
        assert outcome.error is ErrorCode.NONE

    def test_one_that_has_recovered_does_not_start_again(self, cluster: Cluster) -> None:
        (outcome,) = alter(cluster, proposal(cluster, 1, leader_recovery_state=1))
        assert outcome.error is ErrorCode.INVALID_REQUEST
        (outcome,) = alter(cluster, proposal(cluster, 1, leader_recovery_state=5))
        assert outcome.error is ErrorCode.INVALID_REQUEST


def test_a_proposal_that_ends_a_reassignment(cluster: Cluster) -> None:
    topic_id = cluster.image.topics.by_name["t"].id
    cluster.apply(
        [
            PartitionChangeRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[1, 2, 3, 4],
                directories=[bytes([n]) * 16 for n in range(4)],
                adding_replicas=[4],
                removing_replicas=[1],
            )
        ]
    )
    (outcome,) = alter(cluster, proposal(cluster, 1, 2, 3, 4))
    assert outcome.error is ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3, 4), (2, 3, 4), 2)
    assert partition.adding == partition.removing == ()
