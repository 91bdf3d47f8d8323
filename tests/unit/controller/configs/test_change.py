from __future__ import annotations

import pytest

from controller.configs.change import (
    ConfigChange,
    ConfigOperation,
    ConfigOutcome,
    ConfigResource,
    ResourceChange,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from controller.configs.described import describe_resource
from controller.configs.topic_settings import RecoveryStrategy, min_isr_of, recovery_strategy
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.config_record import ConfigRecord
from runtime.config import Source
from testkit.memory.controller import Cluster

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
NO_TOPIC = TOPIC._replace(name="x")
BAD_TOPIC = TOPIC._replace(name="a/b")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
EVERYONE = ConfigResource(ConfigResourceType.BROKER, "")
GROUP = ConfigResource(ConfigResourceType.GROUP, "g")
NOT_NAMED = ErrorCode.INVALID_REQUEST
METRICS = ConfigResource(ConfigResourceType.CLIENT_METRICS, "m")
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1)
    cluster.create_topic("t", [1])
    return cluster


def change(resource: ConfigResource, *changes: tuple[str, int, str | None]) -> ResourceChange:
    return ResourceChange(resource, tuple(ConfigChange(*c) for c in changes))


def alter(cluster: Cluster, *changes: ResourceChange, dry: bool = False) -> list[ConfigOutcome]:
    return list(
        cluster.run(lambda view: decide_incremental_alter_configs(view, changes, validate_only=dry))
    )


def alter_one(
    cluster: Cluster, resource: ConfigResource, *changes: tuple[str, int, str | None]
) -> ErrorCode:
    (outcome,) = alter(cluster, change(resource, *changes))
    assert outcome.resource == resource
    return ErrorCode.NONE if outcome.error is None else outcome.error.code


def replace_all(cluster: Cluster, resource: ConfigResource, **values: str) -> ErrorCode:
    changes = [
        change(resource, *((name.replace("_", "."), SET, value) for name, value in values.items()))
    ]
    (outcome,) = cluster.run(lambda view: decide_alter_configs(view, changes, validate_only=False))
    return ErrorCode.NONE if outcome.error is None else outcome.error.code


def stored(cluster: Cluster, resource: ConfigResource) -> dict[str, str]:
    return dict(cluster.image.configs.get((resource.type, resource.name), {}))


class TestIncremental:
    def test_set_and_delete(self, cluster: Cluster) -> None:
        assert alter_one(cluster, TOPIC, ("retention.ms", SET, "5"), ("flush.ms", SET, "6")) == 0
        assert stored(cluster, TOPIC) == {"retention.ms": "5", "flush.ms": "6"}
        assert alter_one(cluster, TOPIC, ("retention.ms", DELETE, None)) == 0
        assert stored(cluster, TOPIC) == {"flush.ms": "6"}
        assert alter_one(cluster, TOPIC, ("retention.ms", DELETE, None)) == 0
        assert alter_one(cluster, TOPIC, ("flush.ms", DELETE, None)) == 0
        assert (TOPIC.type, TOPIC.name) not in cluster.image.configs

    def test_only_differences_are_written(self, cluster: Cluster) -> None:
        alter_one(cluster, TOPIC, ("retention.ms", SET, "5"))
        changes = [change(TOPIC, ("retention.ms", SET, "5"), ("flush.ms", SET, "6"))]
        decision = decide_incremental_alter_configs(cluster.view(), changes, validate_only=False)
        assert decision.records == (
            ConfigRecord(resource_type=2, resource_name="t", name="flush.ms", value="6"),
        )

    def test_lists(self, cluster: Cluster) -> None:
        key = "cleanup.policy"
        assert alter_one(cluster, TOPIC, (key, APPEND, "compact")) == 0
        assert stored(cluster, TOPIC) == {key: "delete,compact"}
        assert alter_one(cluster, TOPIC, (key, APPEND, "compact")) == 0
        assert alter_one(cluster, TOPIC, (key, SUBTRACT, "delete,nothing")) == 0
        assert stored(cluster, TOPIC) == {key: "compact"}

    def test_lists_of_replicas(self, cluster: Cluster) -> None:
        key = "leader.replication.throttled.replicas"
        assert alter_one(cluster, TOPIC, (key, APPEND, "0:1, 1:1")) == 0
        assert stored(cluster, TOPIC) == {key: "0:1,1:1"}

    def test_validate_only(self, cluster: Cluster) -> None:
        (outcome,) = alter(cluster, change(TOPIC, ("flush.ms", SET, "6")), dry=True)
        assert outcome.error is None
        assert stored(cluster, TOPIC) == {}
        (outcome,) = alter(cluster, change(TOPIC, ("flush.ms", SET, "x")), dry=True)
        assert outcome.error is not None

    def test_brokers_and_all_brokers(self, cluster: Cluster) -> None:
        assert alter_one(cluster, EVERYONE, ("log.cleaner.threads", SET, "2")) == 0
        assert alter_one(cluster, BROKER, ("log.cleaner.threads", SET, "3")) == 0
        assert stored(cluster, EVERYONE) == {"log.cleaner.threads": "2"}
        assert stored(cluster, BROKER) == {"log.cleaner.threads": "3"}
        assert alter_one(cluster, BROKER, ("leader.replication.throttled.rate", SET, "1000")) == 0

    @pytest.mark.parametrize(
        ("resource", "given", "code"),
        [
            (TOPIC, ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
            (TOPIC, ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
            (TOPIC, ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
            (TOPIC, ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
            (TOPIC, ("no.such.key", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
            (TOPIC, ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
            (TOPIC, ("", SET, "1"), ErrorCode.INVALID_CONFIG),
            (TOPIC, ("flush.ms", SET, "1" * 40_000), ErrorCode.INVALID_CONFIG),
            (BROKER, ("node.id", SET, "7"), ErrorCode.INVALID_REQUEST),
            (BROKER, ("log.cleaner.threads", SET, "many"), ErrorCode.INVALID_REQUEST),
            (EVERYONE, ("advertised.listeners", SET, "A://b:1"), ErrorCode.INVALID_REQUEST),
            (
                TOPIC._replace(name="x"),
                ("flush.ms", SET, "1"),
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ),
            (TOPIC._replace(name="a/b"), ("flush.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (
                BROKER._replace(name="9"),
                ("log.cleaner.threads", SET, "1"),
                ErrorCode.BROKER_ID_NOT_REGISTERED,
            ),
            (BROKER._replace(name="one"), ("flush.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
            (EVERYONE, ("listeners", SET, "A://b:1"), ErrorCode.INVALID_REQUEST),
            (GROUP, ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
            (GROUP, ("consumer.session.timeout.ms", SET, "5"), ErrorCode.INVALID_CONFIG),
            (GROUP, ("consumer.session.timeout.ms", SET, "60001"), ErrorCode.INVALID_CONFIG),
            (GROUP, ("consumer.session.timeout.ms", SET, None), ErrorCode.INVALID_REQUEST),
            (GROUP, ("consumer.session.timeout.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
            (
                GROUP._replace(name=""),
                ("share.isolation.level", SET, ""),
                ErrorCode.INVALID_REQUEST,
            ),
            (METRICS, ("no.such.key", SET, "1"), ErrorCode.INVALID_REQUEST),
            (METRICS, ("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
            (METRICS, ("interval.ms", SET, "often"), ErrorCode.INVALID_CONFIG),
            (METRICS, ("match", SET, "client_id"), ErrorCode.INVALID_CONFIG),
            (METRICS, ("metrics", APPEND, "a."), ErrorCode.INVALID_CONFIG),
            (METRICS._replace(name=""), ("interval.ms", SET, "1000"), ErrorCode.INVALID_REQUEST),
            (ConfigResource(8, "1"), ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
            (ConfigResource(77, "1"), ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_refusals(
        self,
        cluster: Cluster,
        resource: ConfigResource,
        given: tuple[str, int, str | None],
        code: ErrorCode,
    ) -> None:
        offset = cluster.next_offset
        assert alter_one(cluster, resource, given) is code
        assert cluster.next_offset == offset

    def test_unknown_keys_are_stored_for_brokers(self, cluster: Cluster) -> None:
        assert alter_one(cluster, BROKER, ("my.reporter.url", SET, "x")) == 0
        assert stored(cluster, BROKER) == {"my.reporter.url": "x"}
        assert alter_one(cluster, BROKER, ("my.reporter.url", DELETE, None)) == 0

    def test_groups_and_client_metrics(self, cluster: Cluster) -> None:
        assert alter_one(cluster, GROUP, ("consumer.session.timeout.ms", SET, "50000")) == 0
        assert alter_one(cluster, METRICS, ("interval.ms", SET, "1000"), ("match", SET, "")) == 0
        assert stored(cluster, GROUP) == {"consumer.session.timeout.ms": "50000"}
        assert stored(cluster, METRICS) == {"interval.ms": "1000", "match": ""}
        assert replace_all(cluster, GROUP, share_isolation_level="read_committed") == 0
        assert stored(cluster, GROUP) == {"share.isolation.level": "read_committed"}
        assert alter_one(cluster, METRICS, ("interval.ms", DELETE, None)) == 0

    def test_one_bad_resource_does_not_stop_the_others(self, cluster: Cluster) -> None:
        outcomes = alter(
            cluster,
            change(TOPIC, ("flush.ms", SET, "x")),
            change(EVERYONE, ("log.cleaner.threads", SET, "2")),
        )
        assert [o.error is None for o in outcomes] == [False, True]
        assert stored(cluster, EVERYONE) == {"log.cleaner.threads": "2"}

    def test_twice_the_same(self, cluster: Cluster) -> None:
        one = change(TOPIC, ("flush.ms", SET, "1"))
        (outcome,) = alter(cluster, one, one)
        assert outcome.error is not None
        assert outcome.error.code is ErrorCode.INVALID_REQUEST
        twice = (("flush.ms", SET, "1"), ("flush.ms", DELETE, None))
        assert alter_one(cluster, TOPIC, *twice) is ErrorCode.INVALID_REQUEST

    def test_values_of_an_unknown_version_do_not_block_changes(self, cluster: Cluster) -> None:
        cluster.apply(
            [
                ConfigRecord(resource_type=2, resource_name="t", name="from.the.future", value="1"),
                ConfigRecord(resource_type=2, resource_name="t", name="flush.ms", value="strange"),
            ]
        )
        assert alter_one(cluster, TOPIC, ("retention.ms", SET, "5")) == 0
        assert alter_one(cluster, TOPIC, ("from.the.future", DELETE, None)) == 0

    def test_too_large_a_request(self, cluster: Cluster) -> None:
        cluster.create_topic("many", *([1] for _ in range(2)))
        big = [
            ResourceChange(
                ConfigResource(ConfigResourceType.BROKER, ""),
                tuple(
                    ConfigChange(f"listener.name.l{number}.log.cleaner.threads", SET, "1")
                    for number in range(10_001)
                ),
            )
        ]
        with pytest.raises(ApiError) as refusal:
            alter(cluster, *big)
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION


class TestFull:
    def test_replace_all_removes_unnamed_keys(self, cluster: Cluster) -> None:
        alter_one(cluster, TOPIC, ("retention.ms", SET, "5"), ("flush.ms", SET, "6"))
        assert replace_all(cluster, TOPIC, flush_ms="7", segment_ms="8") == 0
        assert stored(cluster, TOPIC) == {"flush.ms": "7", "segment.ms": "8"}
        assert replace_all(cluster, TOPIC) == 0
        assert stored(cluster, TOPIC) == {}

    def test_a_refusal_changes_nothing(self, cluster: Cluster) -> None:
        alter_one(cluster, TOPIC, ("retention.ms", SET, "5"))
        assert replace_all(cluster, TOPIC, flush_ms="x") is ErrorCode.INVALID_CONFIG
        assert stored(cluster, TOPIC) == {"retention.ms": "5"}


class TestResolution:
    """Resolution of the settings that elections read at the moment of use."""

    def test_topic_then_node_then_cluster_then_static(self, cluster: Cluster) -> None:
        own = ConfigResource(ConfigResourceType.BROKER, "100")
        key = "min.insync.replicas"
        assert min_isr_of(cluster.view(), "t") == 1
        for resource, value in ((EVERYONE, "2"), (own, "3"), (TOPIC, "4")):
            cluster.apply(
                [
                    ConfigRecord(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        name=key,
                        value=value,
                    )
                ]
            )
            assert min_isr_of(cluster.view(), "t") == int(value)

    @pytest.mark.parametrize(
        ("text", "expected"), [("true", True), ("FALSE", False), ("maybe", False)]
    )
    def test_unclean_election(self, cluster: Cluster, text: str, expected: bool) -> None:
        record = ConfigRecord(
            resource_type=2, resource_name="t", name="unclean.leader.election.enable", value=text
        )
        cluster.apply([record])
        strategy = recovery_strategy(cluster.view(), "t")
        assert (strategy is RecoveryStrategy.AGGRESSIVE) is expected

    def test_static_configuration(self) -> None:
        cluster = Cluster(min_insync_replicas="2", unclean_leader_election_enable="true")
        assert min_isr_of(cluster.view(), "t") == 2
        assert recovery_strategy(cluster.view(), "t") is RecoveryStrategy.AGGRESSIVE


class TestDescribed:
    def test_a_topic(self, cluster: Cluster) -> None:
        alter_one(cluster, EVERYONE, ("log.retention.ms", SET, "9"))
        alter_one(cluster, TOPIC, ("flush.ms", SET, "6"))
        keys = {k.value.key.name: k.value for k in describe_resource(cluster.view(), *TOPIC)}
        assert (keys["flush.ms"].value, keys["flush.ms"].source) == ("6", Source.TOPIC)
        retention = keys["retention.ms"]
        assert (retention.value, retention.source) == ("9", Source.DYNAMIC_DEFAULT_BROKER)

    def test_this_node_and_the_defaults_of_all(self, cluster: Cluster) -> None:
        alter_one(cluster, EVERYONE, ("log.cleaner.threads", SET, "2"))
        own = {k.value.key.name: k for k in describe_resource(cluster.view(), 4, "100")}
        assert own["node.id"].read_only
        assert own["node.id"].value.value == "100"
        assert not own["log.cleaner.threads"].read_only
        (shared,) = describe_resource(cluster.view(), 4, "")
        assert (shared.value.key.name, shared.value.value) == ("log.cleaner.threads", "2")

    def test_groups_client_metrics_and_loggers(self, cluster: Cluster) -> None:
        alter_one(cluster, EVERYONE, ("group.consumer.assignment.interval.ms", SET, "7"))
        alter_one(cluster, GROUP, ("consumer.session.timeout.ms", SET, "50000"))
        alter_one(cluster, METRICS, ("interval.ms", SET, "1000"))
        group = {k.value.key.name: k.value for k in describe_resource(cluster.view(), *GROUP)}
        assert group["consumer.session.timeout.ms"].source is Source.GROUP
        assert group["consumer.assignment.interval.ms"].value == "7"
        metrics = {k.value.key.name: k.value for k in describe_resource(cluster.view(), *METRICS)}
        assert metrics["interval.ms"].value == "1000"
        (root,) = describe_resource(cluster.view(), 8, "100")
        assert (root.value.key.name, root.read_only) == ("root", False)

    @pytest.mark.parametrize(
        ("resource", "code"),
        [
            ((2, "x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ((2, "../x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            ((4, "7"), ErrorCode.INVALID_REQUEST),
            ((32, ""), ErrorCode.INVALID_REQUEST),
            ((16, ""), ErrorCode.INVALID_REQUEST),
            ((8, "7"), ErrorCode.INVALID_REQUEST),
            ((77, "g"), ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_refusals(self, cluster: Cluster, resource: tuple[int, str], code: ErrorCode) -> None:
        with pytest.raises(ApiError) as refusal:
            describe_resource(cluster.view(), *resource)
        assert refusal.value.code is code
