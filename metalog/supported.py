"""Feature levels that this build supports and fully implements.

Brokers and controllers advertise and register this table, formatting writes levels from it, and a
feature update beyond it is refused. A feature that is missing here exists at level 0 only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from metalog.image.features import (
    ELR_VERSION,
    FEATURES_BY_NAME,
    KRAFT,
    KRAFT_VERSION,
    LATEST_PRODUCTION_METADATA_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
)
from metalog.image.values import VersionRange

SUPPORTED_FEATURES: Mapping[str, VersionRange] = {
    METADATA_VERSION: VersionRange(
        MINIMUM_METADATA_VERSION.level, LATEST_PRODUCTION_METADATA_VERSION.level
    ),
    KRAFT_VERSION: VersionRange(0, KRAFT.max_level),
    ELR_VERSION: VersionRange(0, FEATURES_BY_NAME[ELR_VERSION].max_level),
}


class Unsupported(NamedTuple):
    """A finalised level outside of a node's range."""

    feature: str
    level: int
    low: int
    high: int

    def __str__(self) -> str:
        own = f"{self.low} to {self.high}"
        return f"{self.feature} at level {self.level} (this node supports {own})"


def unsupported(
    levels: Mapping[str, int], supported: Mapping[str, VersionRange]
) -> Iterator[Unsupported]:
    """Yield the finalised `levels` that a node with these ranges does not support, by name."""
    for name, level in sorted(levels.items()):
        low, high = supported.get(name, VersionRange(0, 0))
        if level and not low <= level <= high:
            yield Unsupported(name, level, low, high)
