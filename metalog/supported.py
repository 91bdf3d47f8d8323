"""Feature levels that this build supports and fully implements.

Brokers and controllers advertise and register this table, formatting writes levels from it, and a
feature update beyond it is refused. A feature that is missing here exists at level 0 only.
"""

from __future__ import annotations

from collections.abc import Mapping

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
