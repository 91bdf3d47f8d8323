from __future__ import annotations

import pytest

from controller.configs.change import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceChange,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from controller.configs.features import FeatureUpdate, UpgradeType, decide_update_features
from controller.configs.min_isr import first_records
from controller.decision import ControllerView, Decision
from metalog.image.features import ELR_VERSION
from metalog.image.values import ConfigResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from testkit.memory.controller import Cluster

KEY = "min.insync.replicas"
EVERYONE = ConfigResource(ConfigResourceType.BROKER, "")
ONE = ConfigResource(ConfigResourceType.BROKER, "1")
VERSION = FeatureLevelRecord(name="metadata.version", feature_level=30)
ON = FeatureLevelRecord(name=ELR_VERSION, feature_level=1)


def written(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ConfigResourceType.BROKER, resource_name=name, name=KEY, value=value
    )


def decide(view: ControllerView, level: int = 1) -> Decision[str | None]:
    update = FeatureUpdate(ELR_VERSION, level, UpgradeType.UPGRADE)
    return decide_update_features(view, [update], validate_only=False)


def outcome(cluster: Cluster, resource: ConfigResource, value: str | None) -> ErrorCode:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    change = ResourceChange(resource, (ConfigChange(KEY, operation, value),))
    (done,) = cluster.run(
        lambda view: decide_incremental_alter_configs(view, [change], validate_only=False)
    )
    return ErrorCode.NONE if done.error is None else done.error.code


def test_an_empty_log_begins_with_one_min_isr_if_the_feature_is_on() -> None:
    assert first_records([VERSION, ON], 2) == (VERSION, ON, written("", "2"))
    assert first_records([VERSION], 2) == (VERSION,)
    assert first_records([VERSION, ON, written("", "3")], 2) == (VERSION, ON, written("", "3"))


def test_turning_it_on_leaves_one_value_below_the_topics() -> None:
    cluster = Cluster(min_insync_replicas="2")
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    for broker in ("1", "2"):
        assert outcome(cluster, ConfigResource(ConfigResourceType.BROKER, broker), "3") == 0
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    assert outcome(cluster, topic, "1") == 0
    assert decide(cluster.view()).records == (
        ON,
        written("", "2"),
        written("1", None),
        written("2", None),
    )
    assert outcome(cluster, EVERYONE, "4") == 0
    cluster.run(decide)
    assert dict(cluster.image.configs[EVERYONE]) == {KEY: "4"}
    assert ONE not in cluster.image.configs
    assert dict(cluster.image.configs[topic]) == {KEY: "1"}
    assert decide(cluster.view()).records == (ON,)


def test_a_dry_run_writes_nothing() -> None:
    update = FeatureUpdate(ELR_VERSION, 1, UpgradeType.UPGRADE)
    view = Cluster().view()
    assert decide_update_features(view, [update], validate_only=True).records == ()


def test_while_it_is_on_brokers_have_no_value_of_their_own() -> None:
    cluster = Cluster()
    cluster.start(1)
    assert outcome(cluster, ONE, "2") == 0
    assert outcome(cluster, ONE, None) == 0
    cluster.run(decide)
    assert outcome(cluster, ONE, "2") is ErrorCode.INVALID_CONFIG
    assert outcome(cluster, ONE, None) == 0
    assert outcome(cluster, EVERYONE, "2") == 0
    assert outcome(cluster, EVERYONE, None) is ErrorCode.INVALID_CONFIG
    assert dict(cluster.image.configs[EVERYONE]) == {KEY: "2"}


def test_leaving_the_cluster_level_value_out_removes_it() -> None:
    cluster = Cluster()
    cluster.start(1)
    assert outcome(cluster, EVERYONE, "2") == 0
    bare = ResourceChange(EVERYONE, ())
    kept = ResourceChange(EVERYONE, (ConfigChange(KEY, 0, "3"),))
    cluster.run(decide)
    for change, code in ((bare, ErrorCode.INVALID_CONFIG), (kept, None)):
        (done,) = cluster.run(
            lambda view, c=change: decide_alter_configs(view, [c], validate_only=False)
        )
        assert (None if done.error is None else done.error.code) is code
    cluster.apply([FeatureLevelRecord(name=ELR_VERSION, feature_level=0)])
    (done,) = cluster.run(lambda view: decide_alter_configs(view, [bare], validate_only=False))
    assert done.error is None and EVERYONE not in cluster.image.configs


@pytest.mark.parametrize("kind", [UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE])
def test_disabling_elr_with_empty_isr_is_refused(kind: UpgradeType) -> None:
    cluster = Cluster(elr=True)
    cluster.start(1, 2)
    cluster.create_topic("t", [1], [2], [1])
    off = [FeatureUpdate(ELR_VERSION, 0, kind)]

    def turn_off(view: ControllerView) -> Decision[str | None]:
        return decide_update_features(view, off, validate_only=False)

    assert turn_off(cluster.view()).reply is None
    cluster.fence(1)
    stranded = "2 partitions have an empty ISR, for example t-0"
    if kind is UpgradeType.UNSAFE_DOWNGRADE:
        assert cluster.run(turn_off) == stranded
        assert not cluster.view().elr_enabled
        return
    with pytest.raises(ApiError, match=stranded) as refused:
        cluster.run(turn_off)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
