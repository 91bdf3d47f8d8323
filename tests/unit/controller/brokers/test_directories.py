"""Brokers with several log directories: assignments, failed directories and their replicas
(KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.apis.assign_replicas_to_dirs import _directories
from controller.brokers.directories import Assigned, decide_assign_directories
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from protocol.errors import ApiError, ErrorCode
from protocol.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest as Request
from testkit.memory.controller import Cluster, directory, registration

ONE, TWO = b"first directory.", b"second directory"


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster in which broker 1 has two directories, 2 and 3 have one each."""
    cluster = Cluster()
    cluster.register(1, log_dirs=[ONE, TWO])
    cluster.heartbeat(1)
    cluster.start(2, 3)
    cluster.create_topic("t", [1, 2, 3], [1, 2, 3])
    return cluster


def assign(
    cluster: Cluster,
    places: Mapping[bytes, list[int]],
    *,
    broker_id: int = 1,
    epoch: int | None = None,
    topic_id: bytes | None = None,
) -> tuple[Assigned, ...]:
    request = Request(
        broker_id=broker_id,
        broker_epoch=cluster.image.cluster.brokers[broker_id].epoch if epoch is None else epoch,
        directories=[
            Request.DirectoryData(
                id=place,
                topics=[
                    Request.TopicData(
                        topic_id=topic_id or cluster.image.topics.by_name["t"].id,
                        partitions=[Request.PartitionData(partition_index=i) for i in indexes],
                    )
                ],
            )
            for place, indexes in places.items()
        ],
    )
    return cluster.run(lambda view: decide_assign_directories(view, request))


def errors(outcomes: tuple[Assigned, ...]) -> list[ErrorCode]:
    return [outcome.error for outcome in outcomes]


def test_broker_with_one_directory_needs_no_assignment(cluster: Cluster) -> None:
    known = (DIRECTORY_UNASSIGNED, directory(2), directory(3))
    assert cluster.partition("t").directories == known
    before = cluster.next_offset
    assert errors(assign(cluster, {directory(2): [0, 1]}, broker_id=2)) == [ErrorCode.NONE] * 2
    assert cluster.next_offset == before


def test_broker_with_two_directories_assigns_replicas(cluster: Cluster) -> None:
    outcomes = assign(cluster, {ONE: [0], TWO: [1]})
    assert errors(outcomes) == [ErrorCode.NONE] * 2
    assert cluster.partition("t", 0).directories == (ONE, directory(2), directory(3))
    assert cluster.partition("t", 1).directories == (TWO, directory(2), directory(3))
    assert cluster.state("t") == (1, (1, 2, 3), 0, 1), "leader, ISR and leader epoch stay"
    before = cluster.next_offset
    assign(cluster, {ONE: [0], TWO: [1]})
    assert cluster.next_offset == before, "what is known is not written again"


def test_a_partition_named_twice_ends_up_where_it_was_named_last(cluster: Cluster) -> None:
    assert errors(assign(cluster, {ONE: [0], TWO: [0]})) == [ErrorCode.NONE] * 2
    assert cluster.partition("t").directories[0] == TWO
    assert cluster.partition("t").partition_epoch == 2


def test_each_is_judged_alone(cluster: Cluster) -> None:
    cluster.create_topic("other", [2, 3])
    other = cluster.image.topics.by_name["other"].id
    assert errors(assign(cluster, {ONE: [0, 7]})) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert errors(assign(cluster, {ONE: [0]}, topic_id=b"x" * 16)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert errors(assign(cluster, {ONE: [0]}, topic_id=other)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert cluster.partition("t").directories[0] == ONE


def test_assignment_of_old_incarnation_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        assign(cluster, {ONE: [0]}, epoch=cluster.image.cluster.brokers[1].epoch - 1)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_assignment_with_old_metadata_version_is_refused() -> None:
    cluster = Cluster(metadata_version=DIRECTORY_ASSIGNMENT_LEVEL - 1)
    cluster.start(1)
    cluster.create_topic("t", [1])
    with pytest.raises(ApiError) as refused:
        assign(cluster, {ONE: [0]})
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("gone", [DIRECTORY_LOST, b"one that failed."])
def test_a_replica_in_a_directory_that_failed_leaves(cluster: Cluster, gone: bytes) -> None:
    assert errors(assign(cluster, {gone: [0]})) == [ErrorCode.NONE]
    assert cluster.partition("t").directories[0] == gone
    assert cluster.state("t") == (2, (2, 3), 1, 1)
    assert cluster.state("t", 1)[0] == 1


def test_a_failed_directory_takes_its_replicas_out(cluster: Cluster) -> None:
    assign(cluster, {ONE: [0], TWO: [1]})
    before = cluster.next_offset
    assert not cluster.heartbeat(1, offline_log_dirs=[ONE]).is_fenced
    assert cluster.image.cluster.brokers[1].directories == (TWO,)
    assert cluster.state("t", 0)[:2] == (2, (2, 3))
    assert cluster.state("t", 1)[:2] == (1, (1, 2, 3))
    changed = cluster.next_offset
    assert changed == before + 2
    cluster.heartbeat(1, offline_log_dirs=[ONE])
    assert cluster.next_offset == changed, "brokers go on saying it"


def test_the_last_in_sync_replica_stays_in_the_isr_and_does_not_lead(cluster: Cluster) -> None:
    cluster.create_topic("alone", [1])
    topic_id = cluster.image.topics.by_name["alone"].id
    assign(cluster, {ONE: [0]}, topic_id=topic_id)
    cluster.heartbeat(1, offline_log_dirs=[ONE])
    assert cluster.state("alone")[:2] == (-1, (1,))


def test_broker_without_online_directory_changes_no_partition(cluster: Cluster) -> None:
    assign(cluster, {ONE: [0], TWO: [1]})
    before = cluster.next_offset
    cluster.heartbeat(1, offline_log_dirs=[ONE, TWO])
    cluster.heartbeat(2, offline_log_dirs=[directory(2), directory(3)])
    assert cluster.next_offset == before


def test_failure_of_foreign_directory_has_no_effect(cluster: Cluster) -> None:
    before = cluster.next_offset
    cluster.heartbeat(1, offline_log_dirs=[directory(2)])
    assert cluster.next_offset == before


def test_a_fenced_broker_joins_first(cluster: Cluster) -> None:
    """A batch changes a partition once: the broker's next heartbeat reports the failed directory
    again."""
    assign(cluster, {ONE: [0], TWO: [1]})
    cluster.fence(1)
    request = registration(1, life=2, log_dirs=[ONE, TWO])
    cluster.register(1, life=2, log_dirs=request.log_dirs)
    cluster.heartbeat(1, offline_log_dirs=[ONE])
    assert not cluster.image.cluster.brokers[1].fenced
    cluster.heartbeat(1, offline_log_dirs=[ONE])
    assert cluster.image.cluster.brokers[1].directories == (TWO,)


def test_the_answer_has_the_order_of_the_request() -> None:
    t, u = b"t" * 16, b"u" * 16
    given = [
        Assigned(ONE, t, 3, ErrorCode.NONE),
        Assigned(ONE, t, 1, ErrorCode.NONE),
        Assigned(ONE, u, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        Assigned(TWO, t, 2, ErrorCode.NONE),
    ]
    assert [
        (d.id, topic.topic_id, p.partition_index, p.error_code)
        for d in _directories(given)
        for topic in d.topics
        for p in topic.partitions
    ] == [tuple(one) for one in given]
    assert [len(d.topics) for d in _directories(given)] == [2, 1]
