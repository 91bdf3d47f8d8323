from __future__ import annotations

import pytest

from controller.brokers.registration import decide_unregister_controller
from controller.configs.features import FeatureUpdate, UpgradeType, decide_update_features
from metalog.image.features import ELR_VERSION, METADATA_VERSION
from metalog.image.snapshot import image_to_records
from metalog.image.values import VersionRange
from protocol.errors import ApiError, ErrorCode
from protocol.metadata import RegisterControllerRecord
from testkit.memory.controller import FEATURES, Cluster, registration

UP, DOWN, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def update(cluster: Cluster, *updates: FeatureUpdate, dry: bool = False) -> ErrorCode:
    try:
        cluster.run(lambda view: decide_update_features(view, updates, validate_only=dry))
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def level(cluster: Cluster, name: str = METADATA_VERSION) -> int:
    return cluster.image.features.get(name, 0)


def test_upgrade() -> None:
    cluster = Cluster(metadata_version=28)
    cluster.start(1)
    assert update(cluster, FeatureUpdate(METADATA_VERSION, 30, UP), dry=True) == 0
    assert level(cluster) == 28
    assert update(cluster, FeatureUpdate(METADATA_VERSION, 30, UP)) == 0
    assert level(cluster) == 30


@pytest.mark.parametrize("kind", [UP, DOWN])
def test_level_that_a_feature_has_is_written_again(kind: UpgradeType) -> None:
    """Kafka 4.4.0 appends one record, whatever the type of the update; a dry run none."""
    cluster = Cluster(metadata_version=30)
    cluster.start(1)
    offset = cluster.next_offset
    assert update(cluster, FeatureUpdate(METADATA_VERSION, 30, kind), dry=True) == 0
    assert cluster.next_offset == offset
    assert update(cluster, FeatureUpdate(METADATA_VERSION, 30, kind)) == 0
    assert cluster.next_offset == offset + 1
    assert level(cluster) == 30


@pytest.mark.parametrize(
    ("start", "to", "kind", "code"),
    [
        (29, 28, DOWN, ErrorCode.NONE),
        (29, 23, DOWN, ErrorCode.NONE),
        (29, 28, UP, ErrorCode.INVALID_UPDATE_VERSION),
        (29, 22, DOWN, ErrorCode.INVALID_UPDATE_VERSION),
        (29, 22, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (30, 29, DOWN, ErrorCode.INVALID_UPDATE_VERSION),
        (30, 33, UP, ErrorCode.NONE),
        (31, 30, DOWN, ErrorCode.NONE),
        (32, 31, DOWN, ErrorCode.INVALID_UPDATE_VERSION),
        (33, 32, DOWN, ErrorCode.INVALID_UPDATE_VERSION),
        (33, 30, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (33, 34, UP, ErrorCode.INVALID_UPDATE_VERSION),
        (30, 6, DOWN, ErrorCode.INVALID_UPDATE_VERSION),
        (30, 0, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (30, -1, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (28, 29, UpgradeType.UNKNOWN, ErrorCode.INVALID_UPDATE_VERSION),
        (28, 29, 9, ErrorCode.INVALID_UPDATE_VERSION),
        (28, 29, DOWN, ErrorCode.INVALID_UPDATE_VERSION),
        (28, 29, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_metadata_version(start: int, to: int, kind: int, code: ErrorCode) -> None:
    cluster = Cluster(metadata_version=start)
    assert update(cluster, FeatureUpdate(METADATA_VERSION, to, kind)) is code
    assert level(cluster) == (start if code else to)


@pytest.mark.parametrize("name", ["group.version", "no.such.feature", "kraft.version"])
def test_unsupported_feature_level_is_refused(name: str) -> None:
    assert update(Cluster(), FeatureUpdate(name, 1, UP)) is ErrorCode.INVALID_UPDATE_VERSION


def test_turning_off_what_is_off() -> None:
    assert update(Cluster(), FeatureUpdate("group.version", 0, DOWN)) is ErrorCode.NONE


def test_every_registered_node_must_support_it() -> None:
    cluster = Cluster(metadata_version=28)
    old = registration(1).features
    for feature in old:
        feature.max_supported_version = min(feature.max_supported_version, 29)
    cluster.register(1, features=old)
    assert update(cluster, FeatureUpdate(METADATA_VERSION, 29, UP)) is ErrorCode.NONE
    wanted = FeatureUpdate(METADATA_VERSION, 30, UP)
    with pytest.raises(ApiError, match="Broker 1 only supports versions 7-29"):
        cluster.run(lambda view: decide_update_features(view, [wanted], validate_only=False))


def departed_controller(high: int) -> RegisterControllerRecord:
    """Return the registration of controller 77, which has left the cluster."""
    old = RegisterControllerRecord.ControllerFeature(
        name=METADATA_VERSION, min_supported_version=1, max_supported_version=high
    )
    return RegisterControllerRecord(controller_id=77, features=[old])


@pytest.mark.parametrize(
    ("start", "code"), [(15, ErrorCode.INVALID_UPDATE_VERSION), (14, ErrorCode.NONE)]
)
def test_departed_controller_blocks_levels_from_its_registration_on(
    start: int, code: ErrorCode
) -> None:
    """KIP-1312: every registered controller counts, whether it is a voter or not. Below level 15
    no controller registers, so Kafka skips the check."""
    cluster = Cluster(metadata_version=start)
    cluster.start(1)
    cluster.apply([departed_controller(21)])
    assert update(cluster, FeatureUpdate(METADATA_VERSION, 30, UP)) is code
    assert level(cluster) == (start if code else 30)


def test_upgrade_is_possible_after_the_departed_controller_was_unregistered() -> None:
    """KIP-1312: the registration blocks a level until it is removed."""
    cluster = Cluster(metadata_version=33)
    cluster.apply([departed_controller(33)])
    elr = FeatureUpdate(ELR_VERSION, 1, UP)
    assert update(cluster, elr) is ErrorCode.INVALID_UPDATE_VERSION
    cluster.run(lambda view: decide_unregister_controller(view, 77))
    assert update(cluster, elr) is ErrorCode.NONE


def test_static_voter_without_registration_blocks_an_upgrade() -> None:
    """QuorumFeatures of 4.4.0: the levels that an unregistered voter supports are unknown."""
    cluster = Cluster(metadata_version=21)
    cluster.set(static_voters=frozenset({100, 78}))
    wanted = FeatureUpdate(METADATA_VERSION, 30, UP)
    with pytest.raises(ApiError, match="controller 78 has not registered"):
        cluster.run(lambda view: decide_update_features(view, [wanted], validate_only=False))
    cluster.apply(
        [
            RegisterControllerRecord(
                controller_id=78,
                features=[
                    RegisterControllerRecord.ControllerFeature(
                        name=METADATA_VERSION, min_supported_version=7, max_supported_version=33
                    )
                ],
            )
        ]
    )
    assert update(cluster, wanted) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("level", "controller", "code"),
    [
        (33, 100, ErrorCode.INVALID_REQUEST),
        (32, 100, ErrorCode.INVALID_REQUEST),
        (32, 77, ErrorCode.UNSUPPORTED_VERSION),
        (30, 5, ErrorCode.UNSUPPORTED_VERSION),
        (33, -1, ErrorCode.CONTROLLER_ID_NOT_REGISTERED),
        (33, 2**31 - 1, ErrorCode.CONTROLLER_ID_NOT_REGISTERED),
    ],
)
def test_unregister_controller_checks_in_kafkas_order(
    level: int, controller: int, code: ErrorCode
) -> None:
    """The active controller, then the level, then the id (QuorumController of 4.4.0)."""
    cluster = Cluster(metadata_version=level)
    cluster.apply([RegisterControllerRecord(controller_id=77)])
    with pytest.raises(ApiError) as refused:
        cluster.run(lambda view: decide_unregister_controller(view, controller))
    assert refused.value.code is code


def test_unregister_controller_removes_the_registration_once() -> None:
    """A second request finds no registration; the image and its snapshot have none either."""
    cluster = Cluster(metadata_version=33)
    cluster.apply([RegisterControllerRecord(controller_id=77)])
    cluster.run(lambda view: decide_unregister_controller(view, 77))
    assert not cluster.image.cluster.controllers
    assert not any(
        isinstance(record, RegisterControllerRecord)
        for record, _ in image_to_records(cluster.image)
    )
    with pytest.raises(ApiError) as refused:
        cluster.run(lambda view: decide_unregister_controller(view, 77))
    assert refused.value.code is ErrorCode.CONTROLLER_ID_NOT_REGISTERED


def test_all_or_none() -> None:
    cluster = Cluster(metadata_version=28)
    good = FeatureUpdate(METADATA_VERSION, 29, UP)
    bad = FeatureUpdate("no.such.feature", 1, UP)
    assert update(cluster, good, bad) is ErrorCode.INVALID_UPDATE_VERSION
    assert level(cluster) == 28
    assert update(cluster, good, good) is ErrorCode.INVALID_REQUEST


def test_dependencies_hold_afterwards() -> None:
    cluster = Cluster(metadata_version=22)
    cluster.set(features={**FEATURES, ELR_VERSION: VersionRange(0, 1)})
    elr = FeatureUpdate(ELR_VERSION, 1, UP)
    assert update(cluster, elr) is ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, elr, FeatureUpdate(METADATA_VERSION, 24, UP)) is ErrorCode.NONE
    assert (level(cluster), level(cluster, ELR_VERSION)) == (24, 1)
