from __future__ import annotations

import pytest

from controller.apis import elect_leaders
from controller.decision import Decision
from controller.elections.on_request import ElectionOutcome, decide_elect_leaders
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest
from testkit.memory.controller import Cluster

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster: 2 leads t although 1 is preferred and in the ISR; u has its preferred
    leader."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2])
    cluster.create_topic("u", [3, 1])
    cluster.fence(1)
    cluster.heartbeat(1)
    return cluster


def expand(cluster: Cluster, name: str, *isr: int) -> None:
    from protocol.metadata.partition_change_record import PartitionChangeRecord

    topic = cluster.image.topics.by_name[name]
    cluster.apply([PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=list(isr))])


def elect(cluster: Cluster, kind: int, *names: str, index: int = 0) -> list[ElectionOutcome]:
    named = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[index]) for name in names]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=named if names else None)
    return list(cluster.run(lambda view: decide_elect_leaders(view, request)))


def test_preferred(cluster: Cluster) -> None:
    expand(cluster, "t", 2, 1)
    assert elect(cluster, PREFERRED, "t") == [ElectionOutcome("t", 0, ErrorCode.NONE)]
    assert cluster.state("t")[0] == 1
    (again,) = elect(cluster, PREFERRED, "t")
    assert again.error is ErrorCode.ELECTION_NOT_NEEDED


def test_the_preferred_one_is_not_in_the_isr(cluster: Cluster) -> None:
    (outcome,) = elect(cluster, PREFERRED, "t")
    assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert outcome.message == "broker 1 is not in the ISR"
    assert cluster.state("t")[0] == 2


def test_the_preferred_one_is_fenced(cluster: Cluster) -> None:
    cluster.fence(1)
    (outcome,) = elect(cluster, PREFERRED, "t")
    assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert outcome.message == "broker 1 is fenced"


def test_all_partitions_leave_out_who_needs_none(cluster: Cluster) -> None:
    expand(cluster, "t", 2, 1)
    assert [(o.topic, o.error) for o in elect(cluster, PREFERRED)] == [("t", ErrorCode.NONE)]
    assert elect(cluster, PREFERRED) == []


def test_unclean(cluster: Cluster) -> None:
    cluster.fence(2)
    assert cluster.state("t")[:2] == (-1, (2,))
    (outcome,) = elect(cluster, UNCLEAN, "t")
    assert outcome.error is ErrorCode.NONE
    assert cluster.state("t")[:2] == (1, (1,))
    assert cluster.partition("t").recovery_state == 1
    (again,) = elect(cluster, UNCLEAN, "t")
    assert again.error is ErrorCode.ELECTION_NOT_NEEDED


def test_unclean_election_without_a_live_replica_names_each_fenced_one(cluster: Cluster) -> None:
    cluster.fence(2)
    cluster.fence(1)
    (outcome,) = elect(cluster, UNCLEAN, "t")
    assert outcome.error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert outcome.message == "broker 1 is fenced, broker 2 is fenced"


def test_unclean_is_not_for_a_partition_with_a_leader(cluster: Cluster) -> None:
    (outcome,) = elect(cluster, UNCLEAN, "u")
    assert outcome.error is ErrorCode.ELECTION_NOT_NEEDED


def test_unknown(cluster: Cluster) -> None:
    (topic,) = elect(cluster, PREFERRED, "x")
    (partition,) = elect(cluster, PREFERRED, "t", index=9)
    assert {topic.error, partition.error} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_named_twice_is_elected_once(cluster: Cluster) -> None:
    expand(cluster, "t", 2, 1)
    assert len(elect(cluster, PREFERRED, "t", "t")) == 1
    assert cluster.state("t")[2] == 2


@pytest.mark.parametrize("kind", [-1, 2, 77])
def test_types_that_do_not_exist(cluster: Cluster, kind: int) -> None:
    with pytest.raises(ApiError) as refusal:
        elect(cluster, kind, "t")
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
@pytest.mark.parametrize("desired", [[2], [1, 2, 3]])
def test_desired_leaders_match_the_partitions(
    cluster: Cluster, kind: int, desired: list[int]
) -> None:
    """Desired leaders are ignored in these elections, as in the tool's file, but their count must
    match."""
    named = ElectLeadersRequest.TopicPartitions(
        topic="t", partitions=[0, 1], desired_leaders=desired
    )
    request = ElectLeadersRequest(election_type=kind, topic_partitions=[named])
    with pytest.raises(ApiError) as refusal:
        decide_elect_leaders(cluster.view(), request)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert str(len(desired)) in str(refusal.value)
    named.desired_leaders = None
    expected = decide_elect_leaders(cluster.view(), request)
    for ignored in ([9, -1], []):
        named.desired_leaders = ignored
        assert decide_elect_leaders(cluster.view(), request) == expected


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_requests_of_extreme_sizes(cluster: Cluster, kind: int) -> None:
    """An empty list elects nothing, unlike null; ten thousand unknown partitions get an error
    each."""
    nothing = ElectLeadersRequest(election_type=kind, topic_partitions=[])
    assert decide_elect_leaders(cluster.view(), nothing) == Decision((), ())
    indexes = [-(2**31), -1, *range(1, 10_000), 2**31 - 1]
    named = ElectLeadersRequest.TopicPartitions(topic="t", partitions=indexes)
    empty = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[])
    request = ElectLeadersRequest(election_type=kind, topic_partitions=[empty, named])
    decision = decide_elect_leaders(cluster.view(), request)
    assert decision.records == ()
    assert [one.partition_id for one in decision.reply] == indexes
    assert {one.error for one in decision.reply} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_unclean_election_by_configuration() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2], unclean_leader_election_enable="true")
    cluster.create_topic("clean", [1, 2])
    for name in ("t", "clean"):
        expand(cluster, name, 1)
    cluster.fence(1)
    assert cluster.state("t")[:2] == (2, (2,))
    assert cluster.partition("t").recovery_state == 1
    assert cluster.state("clean")[:2] == (-1, (1,))


def test_a_refusal_of_the_whole_request_names_each_partition() -> None:
    named = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 1])]
    request = ElectLeadersRequest(election_type=7, topic_partitions=named)
    error = ApiError(ErrorCode.INVALID_REQUEST, "no such election")
    for version, code in ((0, ErrorCode.NONE), (1, ErrorCode.INVALID_REQUEST)):
        response = elect_leaders._failed(version, request, error)
        assert response.error_code == code
        (topic,) = response.replica_election_results
        assert [(one.partition_id, one.error_code) for one in topic.partition_result] == [
            (0, ErrorCode.INVALID_REQUEST),
            (1, ErrorCode.INVALID_REQUEST),
        ]
