"""Finalised features: levels that the whole cluster uses (KIP-584).

A level may be set only if every registered node supports it, and if the dependencies between
features hold afterwards. Of the registered controllers only the quorum's voters count: the
registration of a removed controller is never deleted, and its old ranges would block every level
forever (KAFKA-20295). The supported ranges are those of this build and contain no unfinished
feature. `kraft.version` belongs to the quorum and changes there.

Lowering a level needs a downgrade type in the request. A lower `metadata.version` is refused if
records were added between the two levels, since their contents would be lost (unsafe downgrade).

Turning on eligible leader replicas (KIP-966) sets one min ISR for all brokers (`configs.min_isr`).
Turning them off is safe only while every partition has a member in its ISR. Without the feature no
ELR member can be elected, so a partition with an empty ISR would have no clean candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from controller.configs.min_isr import one_min_isr
from controller.decision import ControllerView, Decision, check_record_count
from metalog.image.features import (
    ELR_VERSION,
    FEATURES_BY_NAME,
    KRAFT_VERSION,
    METADATA_CHANGED_AT,
    METADATA_VERSION,
    metadata_version_at,
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
    """Set feature levels, all or none.

    The reply describes the partitions left without a clean candidate, None without any.

    Raises:
        ApiError: INVALID_UPDATE_VERSION if a level cannot be set, INVALID_REQUEST if a feature is
            named
            twice.
    """
    levels = dict(view.image.features)
    records = []
    strands = None
    for update in updates:
        if sum(other.name == update.name for other in updates) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate feature {update.name}")
        if _check_update(view, update):
            if update.name == ELR_VERSION and not update.level:
                strands = _stranded(view)
            levels[update.name] = update.level
            records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    _check_dependencies(levels)
    # The metadata version decides how the other records are read, so it comes first.
    records.sort(key=lambda record: record.name != METADATA_VERSION)
    configs: list[MetadataRecord] = []
    if levels.get(ELR_VERSION, 0) and not view.elr_enabled:
        configs += one_min_isr(view.image, view.settings.min_insync_replicas)
        check_record_count(len(records) + len(configs))
    return Decision(() if validate_only else (*records, *configs), strands)


def _check_update(view: ControllerView, update: FeatureUpdate) -> bool:
    """Raise ApiError unless the update is allowed; return whether it changes the level."""
    if update.upgrade_type not in tuple(UpgradeType)[1:]:
        raise _refusal(update, f"invalid upgrade type {update.upgrade_type}")
    if update.level < 0:
        raise _refusal(update, "the level must be at least 0")
    if update.name not in FEATURES_BY_NAME and update.name not in view.image.features:
        raise _refusal(update, "unknown feature")
    if update.name == KRAFT_VERSION:
        raise _refusal(update, "kraft.version of a running quorum cannot be changed")
    for who, ranges in _nodes(view):
        low, high = ranges.get(update.name, VersionRange(0, 0))
        if not low <= update.level <= high and not _turns_off(update):
            raise _refusal(update, f"{who} supports {low} to {high}")
    current = view.image.features.get(update.name, 0)
    if update.level < current:
        _check_downgrade(view, update, current)
    return update.level != current


def _turns_off(update: FeatureUpdate) -> bool:
    return update.level == 0 and update.name != METADATA_VERSION


def _check_downgrade(view: ControllerView, update: FeatureUpdate, current: int) -> None:
    if update.upgrade_type == UpgradeType.UPGRADE:
        raise _refusal(
            update, f"the current level is {current}; a lower one needs a downgrade type"
        )
    if update.name == METADATA_VERSION and any(
        update.level < level <= current for level in METADATA_CHANGED_AT
    ):
        raise _refusal(
            update,
            f"metadata of level {metadata_version_at(current).name} could be lost, "
            "and a downgrade that loses metadata is not supported",
        )
    if update.name == ELR_VERSION:
        _check_elr_off(view, update)


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


def _nodes(view: ControllerView) -> list[tuple[str, Mapping[str, VersionRange]]]:
    """Return this build, the registered voters and brokers, each with the levels it supports."""
    cluster, voters = view.image.cluster, view.voters()
    controllers = [c for c in cluster.controllers.values() if voters is None or c.id in voters]
    return [
        ("this controller", view.settings.features),
        *((f"controller {c.id}", c.features) for c in controllers),
        *((f"broker {b.id}", b.features) for b in cluster.brokers.values()),
    ]


def _check_dependencies(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        spec = FEATURES_BY_NAME.get(name)
        needs = {} if spec is None else spec.needs.get(level, {})
        for other, least in needs.items():
            if levels.get(other, 0) < least:
                raise ApiError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"{name} at level {level} needs {other} at level {least} or higher",
                )


def _refusal(update: FeatureUpdate, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"{update.name} cannot be set to level {update.level}: {why}",
    )
