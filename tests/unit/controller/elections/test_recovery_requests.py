"""ElectLeaders by the longest log and by a named leader."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.on_request import ElectionOutcome, ElectionType, decide_elect_leaders
from controller.elections.recovery_requests import (
    RecoveryPlan,
    Waits,
    decide_recovery_elections,
)
from metalog.image.values import NO_LEADER, ElectedAs
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import PARTITIONS_PER_REQUEST_MAX, ElectLeadersRequest
from testkit.memory.controller import Cluster

AGGRESSIVE = ElectionType.LONGEST_LOG_AGGRESSIVE
BALANCED = ElectionType.LONGEST_LOG_BALANCED
DESIGNATION = ElectionType.DESIGNATION


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster: t has no leader, 1 alone was in sync and is fenced, 2 and 3 live; u has a
    leader."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2, 3])
    cluster.create_topic("u", [3, 2])
    cluster.fence(2)
    cluster.fence(3)
    cluster.fence(1)
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    assert cluster.state("t")[:2] == (NO_LEADER, (1,))
    return cluster


def named(
    topic: str, partitions: list[int], desired: list[int] | None = None
) -> ElectLeadersRequest.TopicPartitions:
    return ElectLeadersRequest.TopicPartitions(
        topic=topic, partitions=partitions, desired_leaders=desired
    )


def elect(
    cluster: Cluster,
    kind: ElectionType,
    *topics: ElectLeadersRequest.TopicPartitions,
    version: int = 3,
) -> RecoveryPlan:
    request = ElectLeadersRequest(election_type=kind, topic_partitions=list(topics) or None)
    return cluster.run(lambda view: decide_recovery_elections(view, request, version))


@pytest.mark.parametrize("kind", [AGGRESSIVE, BALANCED])
def test_the_longest_log_waits_for_answers(cluster: Cluster, kind: ElectionType) -> None:
    plan = elect(cluster, kind, named("t", [0, 9]), named("u", [0]), named("no", [0]))
    t = cluster.image.topics.by_name["t"]
    assert plan.waiting == [Waits("t", 0, t.id)]
    assert [part.error for part in plan.parts if isinstance(part, ElectionOutcome)] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    strategies = {AGGRESSIVE: RecoveryStrategy.AGGRESSIVE, BALANCED: RecoveryStrategy.BALANCED}
    assert plan.strategy is strategies[kind]


def test_all_partitions_are_those_without_leader(cluster: Cluster) -> None:
    t = cluster.image.topics.by_name["t"]
    assert elect(cluster, AGGRESSIVE).parts == (Waits("t", 0, t.id),)


def test_a_designation_passes_over_clean_candidates_and_is_not_refused_by_configuration(
    cluster: Cluster,
) -> None:
    plan = elect(cluster, DESIGNATION, named("t", [0], [3]))
    assert plan.parts == (ElectionOutcome("t", 0, ErrorCode.NONE),)
    assert cluster.state("t")[:2] == (3, (3,))
    (again,) = elect(cluster, DESIGNATION, named("t", [0], [2])).parts
    assert isinstance(again, ElectionOutcome)
    assert again.error is ErrorCode.ELECTION_NOT_NEEDED


def test_a_designation_is_written_as_one(cluster: Cluster) -> None:
    request = ElectLeadersRequest(
        election_type=DESIGNATION, topic_partitions=[named("t", [0], [3])]
    )
    (record,) = decide_recovery_elections(cluster.view(), request, 3).records
    assert record.election_kind == ElectedAs.DESIGNATED  # type: ignore[attr-defined]
    assert record.election_cause == "operator-request"  # type: ignore[attr-defined]


def test_designated_election_refuses_a_fenced_or_unassigned_broker(cluster: Cluster) -> None:
    fenced, stranger, negative = (
        elect(cluster, DESIGNATION, named("t", [0], [broker])).parts[0] for broker in (1, 4, -1)
    )
    assert fenced == ElectionOutcome(
        "t", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "broker 1 is fenced"
    )
    assert stranger == ElectionOutcome(
        "t", 0, ErrorCode.INVALID_REQUEST, "broker 4 is no replica: those are on [1, 2, 3]"
    )
    assert isinstance(negative, ElectionOutcome)
    assert negative.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "topics", "version", "message"),
    [
        (AGGRESSIVE, [named("t", [0])], 2, "election type 2 needs version 3, this is 2"),
        (BALANCED, [named("t", [0])], 1, "election type 3 needs version 3, this is 1"),
        (DESIGNATION, [named("t", [0])], 2, "election type 4 needs version 3, this is 2"),
        (DESIGNATION, [], 3, "a designation needs a list"),
        (DESIGNATION, [named("t", [0])], 3, "topic t: a designation needs desired leaders"),
        (DESIGNATION, [named("t", [0], [])], 3, "topic t: a designation needs desired leaders"),
        (DESIGNATION, [named("t", [0, 1], [2])], 3, "topic t: 1 desired leaders for 2 partitions"),
        (AGGRESSIVE, [named("t", [0], [2, 3])], 3, "topic t: 2 desired leaders for 1 partitions"),
        (
            DESIGNATION,
            [named("t", [0], [2]), named("t", [0], [3])],
            3,
            "topic t partition 0: two desired leaders, 2 and 3",
        ),
    ],
)
def test_refusals(
    cluster: Cluster,
    kind: ElectionType,
    topics: list[ElectLeadersRequest.TopicPartitions],
    version: int,
    message: str,
) -> None:
    with pytest.raises(ApiError) as caught:
        elect(cluster, kind, *topics, version=version)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert message in str(caught.value)


def test_one_leader_named_twice_is_one_election(cluster: Cluster) -> None:
    plan = elect(cluster, DESIGNATION, named("t", [0, 0], [3, 3]))
    assert [part.partition_id for part in plan.parts] == [0]


@pytest.mark.parametrize("kind", [AGGRESSIVE, DESIGNATION])
def test_beyond_the_limit(cluster: Cluster, kind: ElectionType) -> None:
    count = PARTITIONS_PER_REQUEST_MAX + 2
    plan = elect(cluster, kind, named("t", list(range(count)), [3] * count))
    over = plan.parts[PARTITIONS_PER_REQUEST_MAX:]
    assert [part.error for part in over if isinstance(part, ElectionOutcome)] == [
        ErrorCode.REQUEST_LIMIT_REACHED
    ] * 2
    served = plan.parts[:PARTITIONS_PER_REQUEST_MAX]
    assert ErrorCode.REQUEST_LIMIT_REACHED not in {getattr(part, "error", None) for part in served}


@pytest.mark.parametrize("kind", [AGGRESSIVE, BALANCED, DESIGNATION])
def test_requests_of_extreme_sizes(cluster: Cluster, kind: ElectionType) -> None:
    """An empty list elects nothing, unlike null; of ten thousand unknown partitions a thousand are
    looked up."""
    nothing = ElectLeadersRequest(election_type=kind, topic_partitions=[])
    assert decide_recovery_elections(cluster.view(), nothing, 3).reply.parts == ()
    indexes = [-(2**31), -1, *range(1, 10_000), 2**31 - 1]
    plan = elect(cluster, kind, named("t", []), named("no", indexes, [2] * len(indexes)))
    errors = [part.error for part in plan.parts if isinstance(part, ElectionOutcome)]
    assert len(errors) == len(indexes)
    assert Counter(errors) == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: PARTITIONS_PER_REQUEST_MAX,
        ErrorCode.REQUEST_LIMIT_REACHED: len(indexes) - PARTITIONS_PER_REQUEST_MAX,
    }


def test_the_limit_of_the_older_types_counts_what_needs_an_election(cluster: Cluster) -> None:
    request = ElectLeadersRequest(
        election_type=ElectionType.UNCLEAN, topic_partitions=[named("u", [0]), named("t", [0])]
    )
    outcomes = cluster.run(lambda view: decide_elect_leaders(view, request, limit=1))
    assert [(o.topic, o.error) for o in outcomes] == [
        ("u", ErrorCode.ELECTION_NOT_NEEDED),
        ("t", ErrorCode.REQUEST_LIMIT_REACHED),
    ]
    everything = ElectLeadersRequest(election_type=ElectionType.UNCLEAN, topic_partitions=None)
    outcomes = cluster.run(lambda view: decide_elect_leaders(view, everything, limit=1))
    assert [(o.topic, o.error) for o in outcomes] == [("t", ErrorCode.NONE)]
    assert cluster.state("t")[0] == 2
