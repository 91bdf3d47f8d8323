"""Names and topics: B33, B34 and B36 of the catalogue."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest
from testkit.processes.peer import Target, produce_request
from testkit.records.lying_batches import batch

E = ErrorCode
Creatable = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Config = CreateTopicsRequest.CreatableTopicConfig

BAD_NAMES = [
    "",
    ".",
    "..",
    "a" * 250,
    "../../etc/x",
    "a/b",
    "a\x00b",
    "tøpic",
    "日本",
    "a b",
    "a\nb",
    "%2e%2e",
    "a:b",
    "..\\x",
]
GOOD_NAMES = ["a" * 249, "...", "a..b", "-", "__x", "A.b_c-0"]


def create(target: Target, topic: Creatable) -> CreateTopicsResponse.CreatableTopicResult:
    with target.connect(60.0) as peer:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        (result,) = peer.ask(request, 7).topics
        return result


def code_of(target: Target, topic: Creatable) -> ErrorCode:
    return E(create(target, topic).error_code)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_b33_bad_names_are_not_created(target: Target, name: str) -> None:
    topic = Creatable(name=name, num_partitions=1, replication_factor=1)
    assert code_of(target, topic) is E.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_b33_strange_names_are_created(target: Target, name: str) -> None:
    topic = Creatable(name=name, num_partitions=1, replication_factor=1)
    assert code_of(target, topic) is E.NONE
    with target.connect() as peer:
        target.wait_for_leaders(peer, name, 1)
        (one,) = peer.ask(produce_request({(name, 0): batch()}), 12).responses
        assert one.partition_responses[0].error_code == 0
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=10_000
        )
        assert peer.ask(request, 6).responses[0].error_code == 0


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("auto_create", [True, False])
def test_b33_metadata_of_bad_names(target: Target, name: str, auto_create: bool) -> None:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name)],
        allow_auto_topic_creation=auto_create,
    )
    with target.connect() as peer:
        (topic,) = peer.ask(request, 12).topics
        assert E(topic.error_code) is E.INVALID_TOPIC_EXCEPTION
        assert topic.name == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_b33_produce_to_bad_names(target: Target, name: str) -> None:
    with target.connect() as peer:
        (one,) = peer.ask(produce_request({(name, 0): batch()}), 12).responses
        assert E(one.partition_responses[0].error_code) is E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", BAD_NAMES)
def test_b33_delete_bad_names(target: Target, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=1000
    )
    with target.connect() as peer:
        (one,) = peer.ask(request, 6).responses
        assert E(one.error_code) is E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", BAD_NAMES)
def test_b33_configure_bad_names(target: Target, name: str) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=2,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name="retention.ms", config_operation=0, value="1"
                    )
                ],
            )
        ]
    )
    with target.connect() as peer:
        (one,) = peer.ask(request, 1).responses
        assert E(one.error_code) in (
            E.INVALID_TOPIC_EXCEPTION,
            E.INVALID_REQUEST,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        )


def test_b34_names_that_collide(target: Target) -> None:
    name = target.new_name("col.lide")
    assert code_of(target, Creatable(name=name, num_partitions=1, replication_factor=1)) is E.NONE
    other = Creatable(name=name.replace(".", "_"), num_partitions=1, replication_factor=1)
    assert code_of(target, other) is E.INVALID_TOPIC_EXCEPTION
    with target.connect() as peer:
        names = [target.new_name("p.q"), ""]
        names[1] = names[0].replace(".", "_")
        request = CreateTopicsRequest(
            topics=[Creatable(name=n, num_partitions=1, replication_factor=1) for n in names],
            timeout_ms=10_000,
        )
        codes = [E(one.error_code) for one in peer.ask(request, 7).topics]
        # Kafka checks only topics that existed before the request.
        assert sorted(codes) == [E.NONE, E.NONE if target.is_kafka else E.INVALID_TOPIC_EXCEPTION]


def test_b34_the_metadata_topic(target: Target) -> None:
    name = "__cluster_metadata"
    topic = Creatable(name=name, num_partitions=1, replication_factor=1)
    assert code_of(target, topic) is E.INVALID_REQUEST
    with target.connect() as peer:
        delete = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=1000
        )
        assert E(peer.ask(delete, 6).responses[0].error_code) is E.UNKNOWN_TOPIC_OR_PARTITION
        (one,) = peer.ask(produce_request({(name, 0): batch()}), 12).responses
        assert E(one.partition_responses[0].error_code) in (
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.INVALID_TOPIC_EXCEPTION,
        )


def test_b34_internal_topics_take_nothing_from_clients(target: Target) -> None:
    name = "__consumer_offsets"
    create(target, Creatable(name=name, num_partitions=3, replication_factor=1))
    with target.connect() as peer:
        target.wait_for_leaders(peer, name, 3)
        (one,) = peer.ask(produce_request({(name, 0): batch()}), 12).responses
        assert E(one.partition_responses[0].error_code) is E.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("count", [0, -2, -(2**31)])
def test_b36_partition_counts(target: Target, count: int) -> None:
    topic = Creatable(name=target.new_name(), num_partitions=count, replication_factor=1)
    assert code_of(target, topic) is E.INVALID_PARTITIONS


@pytest.mark.parametrize("count", [10_001, 1_000_000, 2**31 - 1])
def test_b36_more_partitions_than_one_operation_may_make(target: Target, count: int) -> None:
    topic = Creatable(name=target.new_name(), num_partitions=count, replication_factor=1)
    assert code_of(target, topic) is E.POLICY_VIOLATION


@pytest.mark.parametrize("factor", [0, -2, 2, 32_767, -32_768])
def test_b36_replication_factors(target: Target, factor: int) -> None:
    topic = Creatable(name=target.new_name(), num_partitions=1, replication_factor=factor)
    assert code_of(target, topic) is E.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    "replicas",
    [
        [[]],
        [[2]],
        [[-1]],
        [[1, 1]],
        [[1], [1, 2]],
        [[1], []],
        [[2**31 - 1]],
    ],
)
def test_b36_assignments(target: Target, replicas: list[list[int]]) -> None:
    topic = Creatable(
        name=target.new_name(),
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            Assignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(replicas)
        ],
    )
    assert code_of(target, topic) is E.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("indexes", [[1], [0, 2], [-1], [0, 0]])
def test_b36_assignments_with_gaps(target: Target, indexes: list[int]) -> None:
    topic = Creatable(
        name=target.new_name(),
        num_partitions=-1,
        replication_factor=-1,
        assignments=[Assignment(partition_index=n, broker_ids=[1]) for n in indexes],
    )
    assert code_of(target, topic) in (E.INVALID_REPLICA_ASSIGNMENT, E.INVALID_REQUEST)


def test_b36_assignments_and_counts_together(target: Target) -> None:
    for partitions, factor in ((1, -1), (-1, 1)):
        topic = Creatable(
            name=target.new_name(),
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[Assignment(partition_index=0, broker_ids=[1])],
        )
        assert code_of(target, topic) is E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.key", "1"),
        ("", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.ms", None),
        ("cleanup.policy", "burn"),
        ("compression.type", "rar"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "99999999999"),
        ("min.insync.replicas", "0"),
        ("segment.bytes", "1"),
        ("message.timestamp.type", "Never"),
    ],
)
def test_b36_bad_configs(target: Target, name: str, value: str | None) -> None:
    topic = Creatable(
        name=target.new_name(),
        num_partitions=1,
        replication_factor=1,
        configs=[Config(name=name, value=value)],
    )
    assert code_of(target, topic) in (E.INVALID_CONFIG, E.INVALID_REQUEST)


def test_b36_a_topic_that_exists_is_answered_with_no_configs(target: Target) -> None:
    result = create(target, Creatable(name=target.topic().name, num_partitions=1))
    assert E(result.error_code) is E.TOPIC_ALREADY_EXISTS
    assert result.configs == []


def test_b36_a_topic_named_twice(target: Target) -> None:
    name = target.new_name()
    with target.connect() as peer:
        topics = [Creatable(name=name, num_partitions=1, replication_factor=1) for _ in range(2)]
        results = peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7).topics
        assert {E(one.error_code) for one in results} == {E.INVALID_REQUEST}
        assert {one.name for one in results} == {name}


@pytest.mark.parametrize("cursor", [("", -1), ("another", 0)])
def test_b36_a_cursor_that_cannot_be(target: Target, cursor: tuple[str, int]) -> None:
    name, index = cursor
    topic = target.topic()
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic.name)],
        cursor=DescribeTopicPartitionsRequest.Cursor(
            topic_name=name or topic.name, partition_index=index
        ),
    )
    with target.connect() as peer:
        (one,) = peer.ask(request, 0).topics
        assert (one.name, E(one.error_code)) == (topic.name, E.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("count", "assignments", "expected"),
    [
        (0, None, E.INVALID_PARTITIONS),
        (-1, None, E.INVALID_PARTITIONS),
        (1, None, E.INVALID_PARTITIONS),
        (2, [], E.INVALID_REPLICA_ASSIGNMENT),
        (10_001, [], E.INVALID_REPLICA_ASSIGNMENT),
        (10_002, [], E.POLICY_VIOLATION),
        (2**31 - 1, [], E.POLICY_VIOLATION),
        (2**31 - 1, None, E.POLICY_VIOLATION),
    ],
)
def test_b36_partition_counts_of_an_existing_topic(
    target: Target,
    count: int,
    assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None,
    expected: ErrorCode,
) -> None:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(
        name=target.topic().name, count=count, assignments=assignments
    )
    with target.connect() as peer:
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)
        (one,) = peer.ask(request, 3).results
        assert E(one.error_code) is expected


@pytest.mark.parametrize("name_first", [True, False])
def test_b36_a_topic_deleted_by_name_and_by_id_at_once_stays(
    target: Target, name_first: bool
) -> None:
    topic = target.topic()
    keys = [
        DeleteTopicsRequest.DeleteTopicState(name=topic.name),
        DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic.id),
    ]
    with target.connect() as peer:
        request = DeleteTopicsRequest(topics=keys if name_first else keys[::-1], timeout_ms=10_000)
        (one,) = peer.ask(request, 6).responses
        assert (one.name, one.topic_id) == (topic.name, topic.id)
        assert E(one.error_code) is E.INVALID_REQUEST
    assert target.produce(topic, batch()).error_code == 0
