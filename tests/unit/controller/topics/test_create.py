from __future__ import annotations

from typing import Any

import pytest

from controller.apis import create_topics
from controller.configs.described import effective_topic
from controller.topics.create import CreatedTopic, TopicOutcome, decide_create_topics
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.topic_record import TopicRecord
from runtime.config import Source
from testkit.memory.controller import Cluster, directory

Topic = CreateTopicsRequest.CreatableTopic
Config = CreateTopicsRequest.CreatableTopicConfig
Assignment = CreateTopicsRequest.CreatableReplicaAssignment


def topic(name: str = "t", partitions: int = -1, replicas: int = -1, **fields: Any) -> Topic:
    return Topic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def assigned(*assignments: tuple[int, list[int]], **fields: Any) -> Topic:
    return topic(
        assignments=[Assignment(partition_index=i, broker_ids=b) for i, b in assignments], **fields
    )


def create(cluster: Cluster, *topics: Topic, validate_only: bool = False) -> list[TopicOutcome]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return list(cluster.run(lambda view: decide_create_topics(view, request)))


def code_of(outcome: TopicOutcome) -> ErrorCode:
    return outcome.result.code if isinstance(outcome.result, ApiError) else ErrorCode.NONE


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(num_partitions="4", default_replication_factor="2")
    cluster.start(1, 2, 3)
    return cluster


def test_the_defaults(cluster: Cluster) -> None:
    (outcome,) = create(cluster, topic())
    assert isinstance(outcome.result, CreatedTopic)
    assert (outcome.result.partition_count, outcome.result.replication_factor) == (4, 2)
    image = cluster.image.topics.by_name["t"]
    assert image.id == outcome.result.topic_id
    assert sorted(image.partitions) == [0, 1, 2, 3]
    for partition in image.partitions.values():
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(directory(r) for r in partition.replicas)


def test_the_order_of_records(cluster: Cluster) -> None:
    request = CreateTopicsRequest(
        topics=[topic(partitions=2, configs=[Config(name="retention.ms", value="5")])]
    )
    decision = decide_create_topics(cluster.view(), request)
    kinds = [type(record) for record in decision.records]
    assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]


def test_configs_are_written_and_reported(cluster: Cluster) -> None:
    (outcome,) = create(cluster, topic(configs=[Config(name="retention.ms", value="5")]))
    assert isinstance(outcome.result, CreatedTopic)
    value = outcome.result.configs["retention.ms"]
    assert (value.value, value.source) == ("5", Source.TOPIC)
    assert outcome.result.configs["segment.bytes"].source is Source.DEFAULT
    assert cluster.image.configs[int(ConfigResourceType.TOPIC), "t"]["retention.ms"] == "5"


def test_validate_only_writes_nothing(cluster: Cluster) -> None:
    (outcome,) = create(cluster, topic(), validate_only=True)
    assert isinstance(outcome.result, CreatedTopic)
    assert "t" not in cluster.image.topics.by_name


def test_one_bad_topic_does_not_stop_the_others(cluster: Cluster) -> None:
    outcomes = create(cluster, topic("a"), topic("b", partitions=0), topic("c"))
    assert [code_of(o) for o in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
    ]
    assert sorted(cluster.image.topics.by_name) == ["a", "c"]


BAD_NAMES = ["", ".", "..", "x" * 250, "../../etc/x", "a/b", "a\0b", "täg", "%2e%2e", "a b", "a\n"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_b33_names(cluster: Cluster, name: str) -> None:
    (outcome,) = create(cluster, topic(name))
    assert code_of(outcome) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["x" * 249, "a.b-c_D9", "...", "__consumer_offsets"])
def test_good_names(cluster: Cluster, name: str) -> None:
    assert code_of(create(cluster, topic(name))[0]) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a.b", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a.b.c", ErrorCode.NONE),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
    ],
)
def test_b34_collisions(cluster: Cluster, name: str, code: ErrorCode) -> None:
    create(cluster, topic("a.b"))
    assert code_of(create(cluster, topic(name))[0]) is code


def test_b34_collision_inside_one_request(cluster: Cluster) -> None:
    outcomes = create(cluster, topic("a.b"), topic("a_b"))
    assert [code_of(o) for o in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_a_name_given_twice_is_answered_once(cluster: Cluster) -> None:
    outcomes = create(cluster, topic("a"), topic("b"), topic("a"))
    assert [(o.name, code_of(o)) for o in outcomes] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(replicas=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(replicas=32767), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(replicas=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(configs=[Config(name="no.such.key", value="1")]), ErrorCode.INVALID_CONFIG),
        (topic(configs=[Config(name="retention.ms", value="x")]), ErrorCode.INVALID_CONFIG),
        (topic(configs=[Config(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
        (topic(configs=[Config(name="retention.ms", value="1")] * 2), ErrorCode.INVALID_CONFIG),
        (topic(configs=[Config(name="flush.ms", value="9" * 40_000)]), ErrorCode.INVALID_CONFIG),
        (assigned((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [9])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [-1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1, 2]), (1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1]), (0, [2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1]), (2, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [1]), partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, [1]), replicas=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, [3, 1]), (1, [2, 3])), ErrorCode.NONE),
    ],
)
def test_b36_counts_assignments_and_configs(
    cluster: Cluster, wanted: Topic, code: ErrorCode
) -> None:
    assert code_of(create(cluster, wanted)[0]) is code


@pytest.mark.parametrize(
    "topics",
    [
        [topic(partitions=1_000_000)],
        [topic("a", partitions=10_000), topic("b", partitions=1)],
        # 10,000 partitions and the topic itself are one record too many.
        [topic(partitions=10_000)],
    ],
)
def test_b36_too_many_records_for_one_operation(cluster: Cluster, topics: list[Topic]) -> None:
    with pytest.raises(ApiError) as refusal:
        create(cluster, *topics)
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION


def test_just_as_many_records_as_allowed(cluster: Cluster) -> None:
    assert code_of(create(cluster, topic(partitions=9_999))[0]) is ErrorCode.NONE


def test_fenced_replicas_start_outside_of_the_isr(cluster: Cluster) -> None:
    cluster.fence(2)
    create(cluster, assigned((0, [2, 1, 3])))
    assert cluster.state("t")[:2] == (1, (1, 3))


def test_all_assigned_brokers_fenced(cluster: Cluster) -> None:
    cluster.fence(2)
    assert code_of(create(cluster, assigned((0, [2])))[0]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_all_brokers_fenced() -> None:
    cluster = Cluster()
    cluster.register(1)
    assert code_of(create(cluster, topic())[0]) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_shutting_down_and_cordoned_brokers_get_no_replicas(cluster: Cluster) -> None:
    create(cluster, assigned((0, [1, 2, 3])))
    cluster.heartbeat(1, want_shut_down=True)
    outcomes = create(cluster, topic("u", partitions=6, replicas=2))
    assert code_of(outcomes[0]) is ErrorCode.NONE
    replicas = {
        r for p in cluster.image.topics.by_name["u"].partitions.values() for r in p.replicas
    }
    assert replicas == {2, 3}


def test_topics_of_a_request_share_the_description_of_their_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 2 ms per topic, 500 topics blocked the controller for a second."""
    described = 0

    def counted(*args: Any) -> Any:
        nonlocal described
        described += 1
        return effective_topic(*args)

    monkeypatch.setattr("controller.topics.create.effective_topic", counted)
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=f"t{number}",
            num_partitions=1,
            replication_factor=1,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(
                    name="retention.ms", value=str(1000 + number % 3)
                )
            ],
        )
        for number in range(60)
    ]
    cluster = Cluster()
    cluster.start(1)
    request = CreateTopicsRequest(topics=topics)
    outcomes = decide_create_topics(cluster.view(), request).reply
    assert described == 3
    found = [one.result.configs["retention.ms"].value for one in outcomes]
    assert found == [str(1000 + number % 3) for number in range(60)]
    answer = create_topics._response(outcomes)
    assert len({id(topic.configs) for topic in answer.topics}) == 3
    for number, topic in enumerate(answer.topics):
        values = {config.name: config.value for config in topic.configs}
        assert values["retention.ms"] == str(1000 + number % 3)
