"""Feature levels of Apache Kafka 4.4, and record versions by `metadata.version` level.

Kafka's tools print these data (`kafka-storage version-mapping`, `feature-dependencies`): level
numbers, release names, the default level of a feature for each release, dependencies, and the
record versions allowed at a level. The levels that our nodes support are fewer (design decision
14); they are in `metalog/supported.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"


class MetadataVersion(NamedTuple):
    """One level of `metadata.version`; `release` is the short name, `name` the full one."""

    level: int
    release: str
    step: int

    @property
    def name(self) -> str:
        return f"{self.release}-IV{self.step}"


METADATA_VERSIONS: tuple[MetadataVersion, ...] = tuple(
    MetadataVersion(level, release, step)
    for level, (release, step) in enumerate(
        [
            ("3.3", 3),
            ("3.4", 0),
            *(("3.5", step) for step in range(3)),
            *(("3.6", step) for step in range(3)),
            *(("3.7", step) for step in range(5)),
            ("3.8", 0),
            ("3.9", 0),
            *(("4.0", step) for step in range(4)),
            *(("4.1", step) for step in range(2)),
            *(("4.2", step) for step in range(2)),
            ("4.3", 0),
            *(("4.4", step) for step in range(3)),
            ("4.5", 0),
        ],
        start=7,
    )
)
"""Every level that Kafka 4.4.0 knows; the last one is for its own tests only."""

MINIMUM_METADATA_VERSION = METADATA_VERSIONS[0]
LATEST_PRODUCTION_METADATA_VERSION = next(v for v in METADATA_VERSIONS if v.name == "4.4-IV2")

METADATA_CHANGED_AT = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
"""Levels of metadata.version that brought new records, new versions or new values of them (32: CIDR
ranges as hosts of ACLs, KIP-1276, which the image keeps as text). A cluster cannot be
lowered across one of them: metadata could be lost."""

DIRECTORY_ASSIGNMENT_LEVEL = 17
METADATA_TRANSACTION_LEVEL = 13
"""3.6-IV1: metadata transactions (KIP-868)."""
CONTROLLER_REGISTRATION_LEVEL = 15
SCRAM_LEVEL = 11
DELEGATION_TOKEN_LEVEL = 14
ELR_LEVEL = 23
PENDING_UPLOAD_LEVEL = 29
"""4.2-IV1: brokers request from each other the earliest offset that is not in the tier
(KIP-1023)."""
CORDONED_DIRECTORIES_LEVEL = 30
CONTROLLER_UNREGISTRATION_LEVEL = 33
"""4.4-IV2: UnregisterControllerRecord (KIP-1312)."""
LEADER_EPOCH_BUMP_ON_ISR_SHRINK_UNTIL_LEVEL = 11
"""Up to and including this level a shrinking ISR bumps the leader epoch (KAFKA-15021)."""


class FeatureSpec(NamedTuple):
    """A finalised feature.

    since: maps each level above 0 to the first `metadata.version` level whose release formats a
    cluster with it. needs: maps a level to its dependencies.
    """

    name: str
    max_level: int
    since: Mapping[int, int]
    needs: Mapping[int, Mapping[str, int]]
    min_level: int = 0

    def default_level(self, metadata_version: int) -> int:
        """Return the level that a cluster formatted at `metadata_version` gets."""
        return max(
            (level for level, first in self.since.items() if first <= metadata_version), default=0
        )


KRAFT = FeatureSpec(KRAFT_VERSION, 1, {1: 21}, {})
FEATURES: tuple[FeatureSpec, ...] = (
    KRAFT,
    FeatureSpec("transaction.version", 2, {1: 24, 2: 24}, {}),
    FeatureSpec("group.version", 1, {1: 22}, {}),
    FeatureSpec(ELR_VERSION, 1, {1: 26}, {1: {METADATA_VERSION: ELR_LEVEL}}),
    FeatureSpec("share.version", 2, {1: 28, 2: 31}, {}),
    FeatureSpec("streams.version", 1, {1: 29}, {}),
)
"""All features but `metadata.version` itself. `kraft.version` is in control records, never in a
FeatureLevelRecord."""
FEATURES_BY_NAME: Mapping[str, FeatureSpec] = {feature.name: feature for feature in FEATURES}


class UnknownVersion(ValueError):
    """A release, feature or level that Kafka 4.4 does not have; the message lists those it has."""


def metadata_version_of(text: str) -> MetadataVersion:
    """Return the version named `text`: "4.4-IV2", a release ("4.4", "4.4.0": its last level) or a
    level.

    Raises:
        UnknownVersion: Kafka 4.4 does not have it.
    """
    if text.isdigit():
        return metadata_version_at(int(text))
    for version in METADATA_VERSIONS:
        if text == version.name:
            return version
    release = ".".join(text.split("-", 1)[0].split(".")[:2])
    matching = [v for v in METADATA_VERSIONS if v.release == release]
    if "-" in text or not matching:
        raise UnknownVersion(
            f"unknown metadata.version {text!r}; supported: "
            f"{MINIMUM_METADATA_VERSION.name} to "
            f"{LATEST_PRODUCTION_METADATA_VERSION.name}"
        )
    return matching[-1]


def metadata_version_at(level: int) -> MetadataVersion:
    """Return the version with that level. Raises UnknownVersion if Kafka 4.4 does not have it."""
    index = level - MINIMUM_METADATA_VERSION.level
    if not 0 <= index < len(METADATA_VERSIONS):
        raise UnknownVersion(
            f"unknown metadata.version level {level}; supported: "
            f"{MINIMUM_METADATA_VERSION.level} to "
            f"{LATEST_PRODUCTION_METADATA_VERSION.level}"
        )
    return METADATA_VERSIONS[index]


def highest_level(name: str) -> int:
    """Return the highest level of a feature that this release knows; 0 for an unknown feature.

    It is the level of production: one for Kafka's own tests has no fixed record formats.
    """
    if name == METADATA_VERSION:
        return LATEST_PRODUCTION_METADATA_VERSION.level
    spec = FEATURES_BY_NAME.get(name)
    return 0 if spec is None else spec.max_level


def can_lower(name: str, current: int, target: int) -> bool:
    """Return whether a feature can be lowered to `target` without a loss of metadata.

    False for an unknown feature, and for a level of `metadata.version` that is not in the table.
    """
    if name != METADATA_VERSION:
        return name in FEATURES_BY_NAME and name != KRAFT_VERSION
    known = METADATA_VERSIONS[0].level <= target < current <= METADATA_VERSIONS[-1].level
    return known and not any(target < level <= current for level in METADATA_CHANGED_AT)


# Record types whose version depends on the metadata.version level: (first level, version), in
# falling order.
_RECORD_VERSIONS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "RegisterBrokerRecord": ((30, 4), (17, 3), (8, 2), (7, 1)),
    "BrokerRegistrationChangeRecord": ((30, 3), (17, 2), (7, 1)),
    "PartitionRecord": ((23, 2), (17, 1), (7, 0)),
    "PartitionChangeRecord": ((23, 2), (17, 1), (7, 0)),
}


def record_version(record_name: str, metadata_version: int) -> int:
    """Return the version in which a record of that class is written at a `metadata.version`
    level."""
    for first_level, version in _RECORD_VERSIONS.get(record_name, ()):
        if metadata_version >= first_level:
            return version
    return 0
