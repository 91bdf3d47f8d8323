"""Reassignments: start, replacement, cancellation, completion, and events during them.

Cites P15, P23, bug list 3 (KAFKA-9672) and 16 (KAFKA-13972).
"""

from __future__ import annotations

import pytest

from controller.topics.change import TopicKey, decide_create_partitions, decide_delete_topics
from controller.topics.isr import decide_alter_partition
from controller.topics.reassignments import ReassignOutcome, decide_reassign, list_reassignments
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from testkit.memory.controller import Cluster, directory

Request = AlterPartitionReassignmentsRequest


def request(
    *wanted: tuple[str, int, list[int] | None], may_change: bool = True
) -> AlterPartitionReassignmentsRequest:
    return Request(
        allow_replication_factor_change=may_change,
        topics=[
            Request.ReassignableTopic(
                name=name,
                partitions=[
                    Request.ReassignablePartition(partition_index=index, replicas=replicas)
                ],
            )
            for name, index, replicas in wanted
        ],
    )


def reassign(
    cluster: Cluster, replicas: list[int] | None, *, topic: str = "t", may_change: bool = True
) -> ErrorCode:
    wanted = request((topic, 0, replicas), may_change=may_change)
    (outcome,) = cluster.run(lambda view: decide_reassign(view, wanted))
    return ErrorCode.NONE if outcome.error is None else outcome.error.code


def propose(cluster: Cluster, isr: list[int], *, topic: str = "t") -> ErrorCode:
    """Propose this ISR in the name of the leader."""
    p = cluster.partition(topic)
    brokers = cluster.image.cluster.brokers
    members = AlterPartitionRequest.BrokerState
    wanted = AlterPartitionRequest(
        broker_id=p.leader,
        broker_epoch=brokers[p.leader].epoch,
        topics=[
            AlterPartitionRequest.TopicData(
                topic_id=cluster.image.topics.by_name[topic].id,
                partitions=[
                    AlterPartitionRequest.PartitionData(
                        partition_index=0,
                        leader_epoch=p.leader_epoch,
                        partition_epoch=p.partition_epoch,
                        new_isr_with_epochs=[
                            members(broker_id=b, broker_epoch=brokers[b].epoch) for b in isr
                        ],
                    )
                ],
            )
        ],
    )
    ((_, (outcome,)),) = cluster.run(lambda view: decide_alter_partition(view, wanted))
    return outcome.error


def cluster_of(*replicas: int, **configs: str) -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3, 4, 5, 6)
    cluster.create_topic("t", list(replicas), **configs)
    return cluster


def shape(
    cluster: Cluster, topic: str = "t"
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    p = cluster.partition(topic)
    return p.replicas, p.isr, p.adding, p.removing


def test_list_reassignments_returns_requested_ongoing_ones() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_topic("a", [1], [1])
    cluster.create_topic("b", [1])
    assert list(list_reassignments(cluster.view(), None)) == []
    for name in ("a", "b"):
        cluster.apply(
            [
                PartitionChangeRecord(
                    partition_id=0,
                    topic_id=cluster.image.topics.by_name[name].id,
                    replicas=[1, 2],
                    directories=[bytes(16), bytes(16)],
                    adding_replicas=[2],
                )
            ]
        )

    def found(named: list[tuple[str, list[int]]] | None) -> list[tuple[str, int]]:
        return [(r.topic, r.partition_id) for r in list_reassignments(cluster.view(), named)]

    assert found(None) == [("a", 0), ("b", 0)]
    assert found([("b", [0, 7]), ("x", [0]), ("a", [1])]) == [("b", 0)]
    assert found([]) == []


def test_a_reassignment_from_start_to_end() -> None:
    cluster = cluster_of(1, 2, 3)
    assert reassign(cluster, [4, 2, 3]) is ErrorCode.NONE
    assert shape(cluster) == ((4, 2, 3, 1), (1, 2, 3), (4,), (1,))
    assert cluster.state("t") == (1, (1, 2, 3), 0, 1), "the leader goes on under its epoch"
    assert propose(cluster, [1, 2, 3, 4]) is ErrorCode.NEW_LEADER_ELECTED
    assert shape(cluster) == ((4, 2, 3), (2, 3, 4), (), ())
    p = cluster.partition("t")
    assert (p.leader, p.leader_epoch, p.partition_epoch) == (4, 1, 2)
    assert p.directories == (directory(4), directory(2), directory(3))


def test_reassignment_completes_when_whole_target_is_in_sync() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [4, 5, 6])
    for isr in ([1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 4, 5]):
        assert propose(cluster, isr) is ErrorCode.NONE
        assert cluster.partition("t").adding == (4, 5, 6)
    assert propose(cluster, [4, 5, 6, 1]) is ErrorCode.NEW_LEADER_ELECTED
    assert shape(cluster) == ((4, 5, 6), (4, 5, 6), (), ())


@pytest.mark.parametrize(
    ("target", "after"),
    [
        ([3, 2, 1], ((3, 2, 1), (1, 2, 3), (), ())),
        ([1, 2], ((1, 2), (1, 2), (), ())),
        ([2], ((2,), (2,), (), ())),
        ([1, 2, 3], ((1, 2, 3), (1, 2, 3), (), ())),
    ],
)
def test_reassignment_without_new_replica_completes_at_once(
    target: list[int], after: tuple[tuple[int, ...], ...]
) -> None:
    cluster = cluster_of(1, 2, 3)
    assert reassign(cluster, target) is ErrorCode.NONE
    assert shape(cluster) == after
    assert cluster.partition("t").leader == (2 if target == [2] else 1)


def test_nothing_is_written_for_what_is_there() -> None:
    cluster = cluster_of(1, 2, 3)
    decision = decide_reassign(cluster.view(), request(("t", 0, [1, 2, 3])))
    assert decision.records == () and decision.reply[0].error is None


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 99], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, -1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_refusals(target: list[int] | None, error: ErrorCode) -> None:
    cluster = cluster_of(1, 2, 3)
    before = cluster.partition("t")
    assert reassign(cluster, target) is error
    assert cluster.partition("t") == before
    assert reassign(cluster, target, topic="no such") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_request_can_forbid_another_replication_factor() -> None:
    cluster = cluster_of(1, 2, 3)
    refused = ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [4, 5], may_change=False) is refused
    assert reassign(cluster, [4, 5, 6], may_change=False) is ErrorCode.NONE
    # 4, 5, 6, 1, 2, 3 for now: the replication factor still counts as three
    assert reassign(cluster, [4, 5], may_change=False) is refused
    assert reassign(cluster, [4, 5, 1], may_change=False) is ErrorCode.NONE


def test_brokers_that_are_down_may_be_the_target() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.fence(4)
    assert reassign(cluster, [1, 2, 4]) is ErrorCode.NONE
    assert cluster.partition("t").adding == (4,)


def test_a_cancelled_reassignment_leaves_no_replica_behind() -> None:
    """KAFKA-13972: the brokers being added learn of the cancellation from a new leader epoch."""
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [1, 4, 5])
    assert propose(cluster, [1, 2, 3, 4]) is ErrorCode.NONE
    epoch = cluster.partition("t").leader_epoch
    assert reassign(cluster, None) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 3), (1, 2, 3), (), ())
    p = cluster.partition("t")
    assert (p.leader, p.leader_epoch) == (1, epoch + 1)
    assert p.directories == (directory(1), directory(2), directory(3))


def test_cancelling_moves_leadership_off_an_added_replica() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [4, 5, 6])
    propose(cluster, [1, 2, 3, 4])
    cluster.fence(1)
    assert cluster.partition("t").leader == 4, "first of the target"
    assert reassign(cluster, None) is ErrorCode.NONE
    assert cluster.partition("t").leader == 2
    assert shape(cluster) == ((1, 2, 3), (2, 3), (), ()), "in the order of before"


def test_p23_reassignment_elects_no_added_replica_uncleanly() -> None:
    """The one broker in sync is shutting down, and the topic allows unclean elections: the added
    replica has no records. Kafka 4.4 elects uncleanly only in a cancellation."""
    cluster = cluster_of(1, unclean_leader_election_enable="true")
    cluster.heartbeat(1, want_shut_down=True)
    assert reassign(cluster, [1, 3]) is ErrorCode.NONE
    assert shape(cluster) == ((1, 3), (1,), (3,), ())


def cancel(cluster: Cluster) -> ReassignOutcome:
    (outcome,) = cluster.run(lambda view: decide_reassign(view, request(("t", 0, None))))
    return outcome


def only_added_in_sync(**configs: str) -> Cluster:
    cluster = cluster_of(1, 2, **configs)
    reassign(cluster, [4, 5])
    propose(cluster, [1, 2, 4])
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.partition("t").isr == (4,)
    return cluster


@pytest.mark.parametrize("unclean", ["false", "true"])
def test_p23_cancelling_never_leaves_fewer_than_min_isr(unclean: str) -> None:
    cluster = only_added_in_sync(unclean_leader_election_enable=unclean)
    before = cluster.partition("t")
    outcome = cancel(cluster)
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert outcome.error.text == (
        "cancelling to [1, 2] would leave [] in sync, fewer than min.insync.replicas=1; "
        "not in sync: [1, 2]"
    )
    assert cluster.partition("t") == before


def test_cancellation_refused_for_isr_names_missing_replicas() -> None:
    cluster = cluster_of(1, 2, 3, min_insync_replicas="2")
    reassign(cluster, [4, 5, 6])
    propose(cluster, [1, 2, 3, 4])
    cluster.fence(2)
    cluster.fence(3)
    assert cluster.partition("t").isr == (1, 4)
    outcome = cancel(cluster)
    assert outcome.error is not None and "not in sync: [2, 3]" in outcome.error.text
    cluster.heartbeat(2)
    propose(cluster, [1, 2, 4])
    assert reassign(cluster, None) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 3), (1, 2), (), ())


def test_cancellation_without_isr_removal_is_allowed_below_min_isr() -> None:
    cluster = cluster_of(1, 2, 3, min_insync_replicas="2")
    reassign(cluster, [4, 5, 6])
    cluster.fence(2)
    cluster.fence(3)
    assert reassign(cluster, None) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 3), (1,), (), ())


def test_min_isr_counts_at_most_the_replicas_that_are_gone_back_to() -> None:
    cluster = cluster_of(1, min_insync_replicas="2")
    reassign(cluster, [1, 4])
    propose(cluster, [1])
    assert reassign(cluster, None) is ErrorCode.NONE
    assert shape(cluster) == ((1,), (1,), (), ())


def test_replacing_starts_from_the_original_replicas() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [1, 2, 4])
    propose(cluster, [1, 2, 3])
    assert reassign(cluster, [1, 2, 5]) is ErrorCode.NONE
    # 4 was never in sync and is gone; cancelling now goes back to 1, 2, 3 alone
    assert shape(cluster) == ((1, 2, 5, 3), (1, 2, 3), (5,), (3,))
    assert reassign(cluster, None) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 3), (1, 2, 3), (), ())


def test_replacing_with_what_is_there_ends_both() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [1, 2, 4])
    assert reassign(cluster, [1, 2, 3]) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 3), (1, 2, 3), (), ())


def test_reassignment_to_union_removes_no_replica() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [1, 2, 4])
    assert reassign(cluster, [1, 2, 3, 4]) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 3, 4), (1, 2, 3), (4,), ())
    assert propose(cluster, [1, 2, 3, 4]) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 3, 4), (1, 2, 3, 4), (), ())


def test_replacing_keeps_who_the_isr_needs() -> None:
    """P23: a replica that the target omits stays while the ISR would fall below min ISR without
    it."""
    cluster = cluster_of(1, 2, 3, min_insync_replicas="2")
    reassign(cluster, [1, 4, 5])
    propose(cluster, [1, 4])
    assert reassign(cluster, [1, 2, 6]) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 6, 3, 4), (1, 4), (6,), (3, 4))
    assert propose(cluster, [1, 4, 2, 6]) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 6), (1, 2, 6), (), ())


def test_a_partition_named_twice_meets_its_first_change() -> None:
    cluster = cluster_of(1, 2, 3)
    wanted = request(("t", 0, [1, 2, 4]), ("t", 0, None), ("t", 0, None))
    outcomes = cluster.run(lambda view: decide_reassign(view, wanted))
    assert [o.error is None for o in outcomes] == [True, True, False]
    assert shape(cluster) == ((1, 2, 3), (1, 2, 3), (), ())


def test_a_fenced_broker_leaves_and_the_reassignment_waits_for_it() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [1, 2, 4])
    cluster.fence(4)
    assert propose(cluster, [1, 2, 3, 4]) is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.partition("t").adding == (4,)
    cluster.heartbeat(4)
    assert propose(cluster, [1, 2, 3, 4]) is ErrorCode.NONE
    assert shape(cluster) == ((1, 2, 4), (1, 2, 4), (), ())


def test_fencing_the_last_one_that_stood_in_the_way_does_not_end_it() -> None:
    """Only members of the target are left in the ISR, but not all of the target are in sync."""
    cluster = cluster_of(1, 2)
    reassign(cluster, [3, 4])
    propose(cluster, [1, 2, 3])
    cluster.fence(1)
    cluster.fence(2)
    assert shape(cluster) == ((3, 4, 1, 2), (3,), (3, 4), (1, 2))


def test_broker_without_replica_cannot_join_isr() -> None:
    """KAFKA-9672: a broker without a replica enters no ISR, by reassignment or by a leader's
    proposal."""
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [1, 4])
    assert propose(cluster, [1, 2, 3, 4]) is ErrorCode.NONE
    assert cluster.partition("t").isr == (1, 4)
    assert propose(cluster, [1, 4, 2]) is ErrorCode.INVALID_REQUEST


def test_partitions_added_during_reassignment_use_target_replication_factor() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [4, 5, 6])
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)]
    )
    (outcome,) = cluster.run(lambda view: decide_create_partitions(view, more))
    assert outcome.error is None
    assert len(cluster.partition("t", 1).replicas) == 3


def test_a_deleted_topic_has_no_reassignment() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, [4, 5, 6])
    cluster.run(lambda view: decide_delete_topics(view, [TopicKey("t")]))
    assert list(list_reassignments(cluster.view(), None)) == []
    assert reassign(cluster, None) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_from_before_directory_ids() -> None:
    """KAFKA-16583: old records name no directories, and neither do new records for those
    partitions."""
    cluster = Cluster(metadata_version=14)
    for broker in (1, 2, 3):
        cluster.register(broker, log_dirs=[])
        cluster.heartbeat(broker)
    cluster.create_topic("t", [1, 2])
    decision = decide_reassign(cluster.view(), request(("t", 0, [1, 3])))
    (record,) = decision.records
    assert isinstance(record, PartitionChangeRecord) and record.directories is None
    assert reassign(cluster, [1, 3]) is ErrorCode.NONE
    assert propose(cluster, [1, 2, 3]) is ErrorCode.NONE
    assert cluster.partition("t").directories == (bytes(15) + b"\0",) * 2
