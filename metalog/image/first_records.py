"""Rule for the first records of a new cluster's metadata log (KIP-1170).

Formatting leaves them in a snapshot file; the first active controller appends them. Each
reader of such a file checks its records here, so that a damaged one is never half used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metalog.image.features import FEATURES_BY_NAME, METADATA_VERSION
from protocol.metadata.feature_level_record import FeatureLevelRecord


def first_records_problem(records: Iterable[Any]) -> str | None:
    """Return the reason why a log cannot begin with these records, None if it can.

    A valid list sets `metadata.version`, and each known feature at most once.
    """
    named = [record.name for record in records if isinstance(record, FeatureLevelRecord)]
    for name in named:
        if name != METADATA_VERSION and name not in FEATURES_BY_NAME:
            return f"sets the unknown feature {name!r}"
        if named.count(name) > 1:
            return f"sets the feature {name} twice"
    return None if METADATA_VERSION in named else f"sets no {METADATA_VERSION}"
