"""Feature levels in ApiVersions: those that this build supports, and those that are finalised."""

from __future__ import annotations

from metalog.image.features import KRAFT_VERSION
from metalog.image.values import MetadataImage
from metalog.supported import SUPPORTED_FEATURES
from protocol.transport.dispatch import Features


def features_of(image: MetadataImage, kraft_version: int) -> Features:
    """Return the features for ApiVersions.

    Args:
        kraft_version: finalised level of the quorum; no record of the image contains it.
    """
    levels = dict(image.features)
    if kraft_version > 0:
        levels[KRAFT_VERSION] = kraft_version
    return Features(
        supported=[(name, *levels) for name, levels in sorted(SUPPORTED_FEATURES.items())],
        finalized=[(name, level, level) for name, level in sorted(levels.items())],
        finalized_epoch=image.provenance.offset,
    )
