from __future__ import annotations

import pytest

from metalog.image.features import (
    FEATURES_BY_NAME,
    LATEST_PRODUCTION_METADATA_VERSION,
    METADATA_VERSIONS,
    UnknownVersion,
    metadata_version_at,
    metadata_version_of,
    record_version,
)
from protocol.metadata import RECORD_CLASSES


def test_levels_are_kafkas() -> None:
    assert [v.level for v in METADATA_VERSIONS] == list(range(7, 35))
    names = {v.name: v.level for v in METADATA_VERSIONS}
    assert names["3.3-IV3"] == 7 and names["3.7-IV4"] == 19 and names["4.0-IV3"] == 25
    assert LATEST_PRODUCTION_METADATA_VERSION.level == 33


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("4.4-IV0", 31),
        ("4.4", 33),
        ("4.4.0", 33),
        ("4.5", 34),
        ("4.3-IV0", 30),
        ("4.3", 30),
        ("4.3.1", 30),
        ("3.9", 21),
        ("4.0", 25),
        ("25", 25),
    ],
)
def test_versions_by_text(text: str, level: int) -> None:
    assert metadata_version_of(text).level == level


@pytest.mark.parametrize("text", ["2.8", "4.3-IV9", "nonsense", "99", "6", ""])
def test_unknown_versions_are_refused(text: str) -> None:
    with pytest.raises(UnknownVersion, match="supported: "):
        metadata_version_of(text)


def test_unknown_level() -> None:
    with pytest.raises(UnknownVersion):
        metadata_version_at(35)


# (release level, the defaults that `kafka-storage version-mapping` prints for it)
@pytest.mark.parametrize(
    ("level", "defaults"),
    [
        (20, (0, 0, 0, 0, 0, 0)),
        (21, (1, 0, 0, 0, 0, 0)),
        (25, (1, 2, 1, 0, 0, 0)),
        (27, (1, 2, 1, 1, 0, 0)),
        (30, (1, 2, 1, 1, 1, 1)),
        (31, (1, 2, 1, 1, 2, 1)),
        (33, (1, 2, 1, 1, 2, 1)),
    ],
)
def test_default_levels_per_release(level: int, defaults: tuple[int, ...]) -> None:
    names = (
        "kraft.version",
        "transaction.version",
        "group.version",
        "eligible.leader.replicas.version",
        "share.version",
        "streams.version",
    )
    assert tuple(FEATURES_BY_NAME[n].default_level(level) for n in names) == defaults


def test_the_newest_level_writes_the_newest_versions() -> None:
    for cls in RECORD_CLASSES.values():
        assert record_version(cls.__name__, 33) == cls.VERSIONS.last
