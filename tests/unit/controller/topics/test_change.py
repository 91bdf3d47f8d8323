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
from testkit.memory.controller import Cluster

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

    @pytest.mark.parametrize(
        "topics",
        [
            [Topic(name="a", count=10_003, assignments=None)],
            [Topic(name="a", count=2**31 - 1, assignments=[])],
            [Topic(name=name, count=5_002, assignments=[]) for name in "ab"],
        ],
        ids=["one over", "before its assignment is checked", "all topics together"],
    )
    def test_request_that_adds_over_10000_is_refused_as_a_whole(
        self, cluster: Cluster, topics: list[CreatePartitionsRequest.CreatePartitionsTopic]
    ) -> None:
        """Kafka 4.4 counts before it examines assignments."""
        with pytest.raises(ApiError) as refusal:
            add(cluster, *topics)
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION

    def test_missing_and_shrinking_topics_do_not_count_as_added(self, cluster: Cluster) -> None:
        """Each of them gets its own error, as in Kafka 4.4."""
        wanted = [("x", 20_000), ("b", 0), ("a", 3)]
        assert add(cluster, *(Topic(name=n, count=c, assignments=None) for n, c in wanted)) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.NONE,
        ]
