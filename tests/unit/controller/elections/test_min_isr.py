from __future__ import annotations

from typing import Any

import pytest

from controller.configs.change import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceChange,
    decide_incremental_alter_configs,
)
from controller.configs.features import FeatureUpdate, UpgradeType, decide_update_features
from controller.decision import RECORDS_PER_OPERATION_MAX, ControllerView, Decision
from controller.elections.min_isr import clearing_elr
from metalog.image.features import ELR_VERSION
from metalog.image.values import ConfigResourceType
from protocol.metadata.clear_elr_record import ClearElrRecord
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from testkit.memory.controller import Cluster

KEY = "min.insync.replicas"
EVERYONE = ConfigResource(ConfigResourceType.BROKER, "")


def topic(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


def cluster_of(
    topics: dict[str, list[tuple[list[int], list[int]]]], *, elr: bool = True
) -> Cluster:
    """Return topics with partitions of three replicas, each given by ISR and ELR; min ISR is 3."""
    cluster = Cluster(elr=elr, min_insync_replicas="3")
    cluster.start(1, 2, 3)
    for name, partitions in topics.items():
        cluster.create_topic(name, *([1, 2, 3] for _ in partitions))
        topic_id = cluster.image.topics.by_name[name].id
        cluster.apply(
            [
                PartitionChangeRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    isr=isr,
                    leader=isr[0] if isr else -1,
                    eligible_leader_replicas=elr_of,
                )
                for index, (isr, elr_of) in enumerate(partitions)
            ]
        )
    return cluster


def change(cluster: Cluster, resource: ConfigResource, value: str | None) -> list[str]:
    """Apply the change and return a description of its records."""
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    asked = ResourceChange(resource, (ConfigChange(KEY, operation, value),))

    def decide(view: ControllerView) -> Decision[Any]:
        return decide_incremental_alter_configs(view, [asked], validate_only=False)

    return apply(cluster, clearing_elr(decide)(cluster.view()))


def apply(cluster: Cluster, decision: Decision[Any]) -> list[str]:
    cluster.apply(decision.records)
    return [words(cluster, record) for record in decision.records]


def words(cluster: Cluster, record: Any) -> str:
    if isinstance(record, ClearElrRecord):
        return f"clear {record.topic_name or 'all'}"
    if isinstance(record, PartitionChangeRecord):
        assert record.eligible_leader_replicas == []
        name = cluster.image.topics.by_id[record.topic_id].name
        return f"{name}-{record.partition_id}"
    if isinstance(record, FeatureLevelRecord):
        return "feature"
    assert isinstance(record, ConfigRecord)
    return f"{record.resource_name or 'all'}={record.value}"


def sets(cluster: Cluster, name: str) -> list[tuple[int, ...]]:
    return [p.elr for _, p in sorted(cluster.image.topics.by_name[name].partitions.items())]


def test_all_partitions_of_a_topic_lose_them_by_one_record() -> None:
    cluster = cluster_of({"a": [([1, 2], [3]), ([1, 2, 3], [])], "b": [([1, 2], [3])]})
    epochs = [p.partition_epoch for p in cluster.image.topics.by_name["a"].partitions.values()]
    assert change(cluster, topic("a"), "2") == ["clear a", "a=2"]
    assert (sets(cluster, "a"), sets(cluster, "b")) == ([(), ()], [(3,)])
    after = [p.partition_epoch for p in cluster.image.topics.by_name["a"].partitions.values()]
    assert sorted(after) == sorted([epochs[0] + 1, epochs[1]])


def test_a_partition_below_the_new_minimum_keeps_its_candidates() -> None:
    cluster = cluster_of({"a": [([1, 2], [3]), ([1], [2, 3]), ([], [2, 3])]})
    assert change(cluster, topic("a"), "2") == ["a-0", "a=2"]
    assert sets(cluster, "a") == [(), (2, 3), (2, 3)]
    assert change(cluster, topic("a"), "1") == ["a-1", "a=1"]
    assert sets(cluster, "a") == [(), (), (2, 3)]


def test_a_raised_minimum_takes_nothing_away() -> None:
    cluster = cluster_of({"a": [([1, 2], [3])]})
    change(cluster, EVERYONE, "3")
    assert change(cluster, topic("a"), "5") == ["a=5"]
    assert change(cluster, EVERYONE, "9") == ["all=9"]
    assert sets(cluster, "a") == [(3,)]


def test_all_partitions_of_all_topics_lose_them_by_one_record() -> None:
    cluster = cluster_of({"a": [([1, 2], [3])], "b": [([1, 2], [3])]})
    assert change(cluster, EVERYONE, "2") == ["clear all", "all=2"]
    assert sets(cluster, "a") + sets(cluster, "b") == [(), ()]


def test_min_isr_change_of_the_cluster_skips_topics_with_their_own_value() -> None:
    cluster = cluster_of({"a": [([1, 2], [3])], "b": [([1, 2], [3])]})
    change(cluster, EVERYONE, "3")
    change(cluster, topic("b"), "3")
    assert change(cluster, EVERYONE, "1") == ["a-0", "all=1"]
    assert (sets(cluster, "a"), sets(cluster, "b")) == ([()], [(3,)])


def test_removing_a_topics_value_changes_it_too() -> None:
    cluster = cluster_of({"a": [([1, 2], [3])]})
    change(cluster, topic("a"), "3")
    change(cluster, EVERYONE, "2")
    assert change(cluster, topic("a"), None) == ["clear a", "a=None"]


def test_a_value_that_was_in_force_already_changes_nothing() -> None:
    cluster = cluster_of({"a": [([1, 2], [3])]})
    assert change(cluster, topic("a"), "3") == ["a=3"]
    assert sets(cluster, "a") == [(3,)]


def test_min_isr_change_without_an_elr_writes_only_the_config() -> None:
    cluster = cluster_of({"a": [([1, 2, 3], [])]})
    assert change(cluster, topic("a"), "1") == ["a=1"]
    assert change(cluster, EVERYONE, "1") == ["all=1"]


def test_more_partitions_than_one_batch_holds() -> None:
    """The writer splits the decision: its first batches empty the ELRs before min ISR is
    lowered."""
    half = RECORDS_PER_OPERATION_MAX // 2 + 1
    many = [([1, 2], [3])] * half
    cluster = cluster_of({"a": many, "b": [([1], [2, 3])], "c": many})
    written = change(cluster, EVERYONE, "2")
    assert len(written) == 2 * half + 1 and written[-1] == "all=2"
    assert {*sets(cluster, "a"), *sets(cluster, "c")} == {()} and sets(cluster, "b") == [(2, 3)]


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([([1, 2], [3]), ([1], [2])], ["clear all", "feature", "all=3"]),
        ([([1, 2], [3]), ([], [2])], ["a-0", "feature", "all=3"]),
        ([([], [2])], ["feature", "all=3"]),
        ([([1, 2, 3], [])], ["feature", "all=3"]),
    ],
)
def test_turning_the_feature_on_trusts_no_set_that_a_leader_may_have_left_behind(
    partitions: list[tuple[list[int], list[int]]], expected: list[str]
) -> None:
    cluster = cluster_of({"a": partitions}, elr=False)
    on = FeatureUpdate(ELR_VERSION, 1, UpgradeType.UPGRADE)

    def decide(view: ControllerView) -> Decision[Any]:
        return decide_update_features(view, [on], validate_only=False)

    assert apply(cluster, clearing_elr(decide)(cluster.view())) == expected
