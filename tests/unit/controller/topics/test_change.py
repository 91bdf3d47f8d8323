from __future__ import annotations

import pytest

from controller.topics.change import (
    DeleteOutcome,
    PartitionsOutcome,
    TopicKey,
    decide_create_partitions,
    decide_delete_topics,
)
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest
from testkit.memory.controller import Cluster, directory

Topic = CreatePartitionsRequest.CreatePartitionsTopic
Assignment = CreatePartitionsRequest.CreatePartitionsAssignment


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("a", [1, 2], [2, 3], retention_ms="5")
    cluster.create_topic("b", [1])
    return cluster


def delete(cluster: Cluster, *keys: TopicKey) -> list[DeleteOutcome]:
    return list(cluster.run(lambda view: decide_delete_topics(view, keys)))


def code_of(outcome: DeleteOutcome | PartitionsOutcome) -> ErrorCode:
    return ErrorCode.NONE if outcome.error is None else outcome.error.code


class TestDelete:
    def test_by_name_with_its_configs(self, cluster: Cluster) -> None:
        topic_id = cluster.image.topics.by_name["a"].id
        (outcome,) = delete(cluster, TopicKey("a"))
        assert outcome == DeleteOutcome("a", topic_id, None)
        assert sorted(cluster.image.topics.by_name) == ["b"]
        assert (int(ConfigResourceType.TOPIC), "a") not in cluster.image.configs

    def test_by_id(self, cluster: Cluster) -> None:
        topic_id = cluster.image.topics.by_name["a"].id
        assert delete(cluster, TopicKey(None, topic_id)) == [DeleteOutcome("a", topic_id, None)]

    def test_b35_a_namesake_has_another_id(self, cluster: Cluster) -> None:
        old = cluster.image.topics.by_name["a"].id
        delete(cluster, TopicKey("a"))
        cluster.create_topic("a", [1])
        (outcome,) = delete(cluster, TopicKey(None, old))
        assert code_of(outcome) is ErrorCode.UNKNOWN_TOPIC_ID
        assert "a" in cluster.image.topics.by_name

    @pytest.mark.parametrize(
        ("key", "code"),
        [
            (TopicKey("nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TopicKey(""), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TopicKey("../a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TopicKey(None, b"x" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
            (TopicKey(None), ErrorCode.INVALID_REQUEST),
            (TopicKey("a", b"x" * 16), ErrorCode.INVALID_REQUEST),
            (TopicKey("__cluster_metadata"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    def test_refusals(self, cluster: Cluster, key: TopicKey, code: ErrorCode) -> None:
        outcomes = delete(cluster, key, TopicKey("b"))
        assert [code_of(outcome) for outcome in outcomes] == [code, ErrorCode.NONE]

    def test_named_twice(self, cluster: Cluster) -> None:
        outcomes = delete(cluster, TopicKey("a"), TopicKey("a"), TopicKey("b"))
        assert [code_of(o) for o in outcomes] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert "a" in cluster.image.topics.by_name

    @pytest.mark.parametrize("name_first", [True, False])
    def test_named_by_name_and_by_id(self, cluster: Cluster, name_first: bool) -> None:
        topic_id = cluster.image.topics.by_name["a"].id
        keys = [TopicKey("a"), TopicKey(None, topic_id)]
        (outcome,) = delete(cluster, *(keys if name_first else reversed(keys)))
        assert (outcome.name, outcome.topic_id) == ("a", topic_id)
        assert code_of(outcome) is ErrorCode.INVALID_REQUEST
        assert "a" in cluster.image.topics.by_name

    def test_disabled(self, cluster: Cluster) -> None:
        cluster.set(delete_topic_enable=False)
        with pytest.raises(ApiError) as refusal:
            delete(cluster, TopicKey("a"))
        assert refusal.value.code is ErrorCode.TOPIC_DELETION_DISABLED

    def test_too_many(self, cluster: Cluster) -> None:
        with pytest.raises(ApiError) as refusal:
            delete(cluster, *(TopicKey(str(number)) for number in range(10_001)))
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION


def add(
    cluster: Cluster, *topics: CreatePartitionsRequest.CreatePartitionsTopic, dry: bool = False
) -> list[ErrorCode]:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=dry)
    outcomes = cluster.run(lambda view: decide_create_partitions(view, request))
    return [code_of(outcome) for outcome in outcomes]


class TestMorePartitions:
    def test_placed_with_the_topic_s_replication_factor(self, cluster: Cluster) -> None:
        before = cluster.partition("a")
        assert add(cluster, Topic(name="a", count=5, assignments=None)) == [ErrorCode.NONE]
        partitions = cluster.image.topics.by_name["a"].partitions
        assert sorted(partitions) == [0, 1, 2, 3, 4]
        assert all(len(p.replicas) == 2 for p in partitions.values())
        assert partitions[0] is before

    def test_assigned(self, cluster: Cluster) -> None:
        wanted = Topic(name="a", count=3, assignments=[Assignment(broker_ids=[3, 1])])
        assert add(cluster, wanted) == [ErrorCode.NONE]
        assert cluster.partition("a", 2).replicas == (3, 1)

    def test_validate_only(self, cluster: Cluster) -> None:
        assert add(cluster, Topic(name="a", count=3, assignments=None), dry=True) == [
            ErrorCode.NONE
        ]
        assert len(cluster.image.topics.by_name["a"].partitions) == 2

    @pytest.mark.parametrize(
        ("wanted", "code"),
        [
            (Topic(name="x", count=3, assignments=None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (Topic(name="a", count=2, assignments=None), ErrorCode.INVALID_PARTITIONS),
            (Topic(name="a", count=1, assignments=None), ErrorCode.INVALID_PARTITIONS),
            (Topic(name="a", count=-1, assignments=None), ErrorCode.INVALID_PARTITIONS),
            # Null requests a placement; an empty list has too few entries.
            (Topic(name="a", count=3, assignments=[]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (
                Topic(name="a", count=4, assignments=[Assignment(broker_ids=[3, 1])]),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ),
            (
                Topic(name="a", count=3, assignments=[Assignment(broker_ids=[3])]),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ),
            (
                Topic(name="a", count=3, assignments=[Assignment(broker_ids=[3, 9])]),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ),
        ],
    )
    def test_refusals(
        self,
        cluster: Cluster,
        wanted: CreatePartitionsRequest.CreatePartitionsTopic,
        code: ErrorCode,
    ) -> None:
        assert add(cluster, wanted, Topic(name="b", count=2, assignments=None)) == [
            code,
            ErrorCode.NONE,
        ]

    def test_named_twice(self, cluster: Cluster) -> None:
        wanted = Topic(name="a", count=4, assignments=None)
        assert add(cluster, wanted, wanted) == [ErrorCode.INVALID_REQUEST]

    @pytest.mark.parametrize("assignments", [None, []])
    @pytest.mark.parametrize(
        "counts", [(10_003, 3), (2**31 - 1, 3), (6_000, 6_000), (2**31 - 1, 2**31 - 1)]
    )
    def test_more_partitions_than_one_operation_may_add_refuse_every_topic(
        self,
        cluster: Cluster,
        counts: tuple[int, int],
        assignments: list[Assignment] | None,
    ) -> None:
        """Kafka 4.4 counts the partitions of all topics before it reads an assignment."""
        with pytest.raises(ApiError) as refusal:
            add(
                cluster,
                Topic(name="a", count=counts[0], assignments=assignments),
                Topic(name="b", count=counts[1], assignments=None),
            )
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION

    def test_topics_that_add_nothing_do_not_count_against_the_limit(self, cluster: Cluster) -> None:
        huge = 2**31 - 1
        assert add(
            cluster,
            Topic(name="a", count=10_002, assignments=[]),
            Topic(name="x", count=huge, assignments=None),
            Topic(name="b", count=huge, assignments=None),
            Topic(name="b", count=huge, assignments=None),
        ) == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]

    def test_broker_with_cordoned_directories_is_assigned_no_replica(
        self, cluster: Cluster
    ) -> None:
        """KIP-1066: since 4.4 that holds for assignments by hand as well."""
        cluster.heartbeat(3, cordoned_log_dirs=[directory(3)])
        wanted = Topic(name="a", count=3, assignments=[Assignment(broker_ids=[3, 1])])
        assert add(cluster, wanted) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
        cluster.heartbeat(3, cordoned_log_dirs=[])
        assert add(cluster, wanted) == [ErrorCode.NONE]
