"""Finalised features: levels that the whole cluster uses (KIP-584).

A level may be set only if every registered node supports it, and if the dependencies between
features hold afterwards. From the level on at which controllers register, every registered
controller counts, and a static voter that has not registered is refused. The registration of a
controller that has left the cluster therefore blocks upgrades until it is removed
(UnregisterController, KIP-1312). The supported ranges are those of this build and contain no
unfinished feature. `kraft.version` belongs to the quorum and changes there.

Order of the checks, codes and messages are those of Apache Kafka 4.4.0: tools show the messages.

Lowering a level needs a downgrade type in the request. A lower `metadata.version` is refused if
records were added between the two levels, since their contents would be lost (unsafe downgrade).

Turning on eligible leader replicas (KIP-966) sets one min ISR for all brokers (`configs.min_isr`).
Turning them off is safe only while every partition has a member in its ISR. Without the feature no
ELR member can be elected, so a partition with an empty ISR would have no clean candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from controller.configs.min_isr import one_min_isr
from controller.decision import ControllerView, Decision, check_record_count
from metalog.image.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    ELR_VERSION,
    FEATURES_BY_NAME,
    KRAFT_VERSION,
    METADATA_CHANGED_AT,
    METADATA_VERSION,
)
from metalog.image.values import VersionRange
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.schema import MetadataRecord


class UpgradeType(IntEnum):
    """Upgrade types of a feature update: the kinds of change that it allows."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int


def decide_update_features(
    view: ControllerView, updates: Sequence[FeatureUpdate], *, validate_only: bool
) -> Decision[str | None]:
    """Set feature levels, all or none. A level that the feature has already is written again, as
    in Kafka.

    The reply describes the partitions left without a clean candidate, None without any.

    Raises:
        ApiError: INVALID_UPDATE_VERSION if a level cannot be set, INVALID_REQUEST if a feature is
            named
            twice.
    """
    levels = dict(view.image.features)
    levels.update((update.name, update.level) for update in updates)
    records = []
    strands = None
    for update in updates:
        if sum(other.name == update.name for other in updates) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate feature {update.name}")
        _check_update(view, update, levels)
        if update.name == ELR_VERSION and view.elr_enabled and not update.level:
            strands = _stranded(view)
        records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    # The metadata version decides how the other records are read, so it comes first.
    records.sort(key=lambda record: record.name != METADATA_VERSION)
    configs: list[MetadataRecord] = []
    if levels.get(ELR_VERSION, 0) and not view.elr_enabled:
        configs += one_min_isr(view.image, view.settings.min_insync_replicas)
        check_record_count(len(records) + len(configs))
    return Decision(() if validate_only else (*records, *configs), strands)


def _check_update(view: ControllerView, update: FeatureUpdate, levels: Mapping[str, int]) -> None:
    """Check one update, in Kafka's order; `levels` are those after all updates. Raises ApiError."""
    if update.upgrade_type not in tuple(UpgradeType)[1:]:
        raise _refusal(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _refusal(update, "A feature version cannot be less than 0.")
    problem = next(_unsupported_by(view, update), None)
    if problem is not None:
        raise _refusal(update, problem)
    if update.name == KRAFT_VERSION:
        raise _refusal(update, "kraft.version of a running quorum cannot be changed")
    current = view.image.features.get(update.name, 0)
    if update.level < current:
        _check_downgrade(view, update, current)
    elif update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        raise _refusal(update, "Can't downgrade to a newer version.")
    if update.name not in FEATURES_BY_NAME and update.name not in view.image.features:
        raise _refusal(update, f"Feature {update.name} not found.")
    _check_dependencies(update, levels)


def _check_downgrade(view: ControllerView, update: FeatureUpdate, current: int) -> None:
    if update.upgrade_type == UpgradeType.UPGRADE:
        raise _refusal(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if update.name == METADATA_VERSION and any(
        update.level < level <= current for level in METADATA_CHANGED_AT
    ):
        unsafe = update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {update.level}. "
            + (_UNSAFE_IS_UNSUPPORTED if unsafe else _DELETES_METADATA),
        )
    if update.name == ELR_VERSION:
        _check_elr_off(view, update)


_UNSAFE_IS_UNSUPPORTED = "Unsafe metadata downgrade is not supported in this version."
_DELETES_METADATA = (
    "Refusing to perform the requested downgrade because it might delete metadata information."
)


def _check_elr_off(view: ControllerView, update: FeatureUpdate) -> None:
    strands = _stranded(view)
    if strands is not None and update.upgrade_type != UpgradeType.UNSAFE_DOWNGRADE:
        raise _refusal(
            update,
            f"{strands}, and without the feature only an unclean election could give them a "
            "leader. Wait until they have one, or allow an unsafe downgrade",
        )


def _stranded(view: ControllerView) -> str | None:
    """Return the number of partitions with an empty ISR and one of them, None without any."""
    empty = [
        f"{name}-{index}"
        for name, topic in view.image.topics.by_name.items()
        for index, partition in topic.partitions.items()
        if not partition.isr
    ]
    if not empty:
        return None
    return f"{len(empty)} partitions have an empty ISR, for example {min(empty)}"


def _unsupported_by(view: ControllerView, update: FeatureUpdate) -> Iterator[str]:
    """Yield the problem of each node that does not support the level."""
    cluster, own_id = view.image.cluster, view.settings.node_id
    yield from _range_problem(f"Local controller {own_id}", view.settings.features, update)
    for broker in cluster.brokers.values():
        yield from _range_problem(f"Broker {broker.id}", broker.features, update)
    if view.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        return
    for controller in cluster.controllers.values():
        if controller.id != own_id:
            yield from _range_problem(f"Controller {controller.id}", controller.features, update)
    for voter in sorted(view.settings.static_voters - {own_id}):
        if voter not in cluster.controllers:
            yield f"controller {voter} has not registered, and may not support this feature"


def _range_problem(
    node: str, ranges: Mapping[str, VersionRange], update: FeatureUpdate
) -> Iterator[str]:
    low, high = ranges.get(update.name, VersionRange(0, 0))
    if not low <= update.level <= high:
        supported = f"{low}-{high}" if low < high else f"{low}"
        yield (
            f"{node} only supports versions {supported}"
            if high
            else f"{node} does not support this feature."
        )


def _check_dependencies(update: FeatureUpdate, levels: Mapping[str, int]) -> None:
    spec = FEATURES_BY_NAME.get(update.name)
    needs = {} if spec is None else spec.needs.get(update.level, {})
    for other, least in needs.items():
        if levels.get(other, 0) < least:
            raise _refusal(
                update,
                f"{update.name} could not be set to {update.level} because it depends on "
                f"{other} level {least}",
            )


def _refusal(update: FeatureUpdate, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {why}",
    )
