from __future__ import annotations

from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE, Provenance
from metalog.supported import SUPPORTED_FEATURES
from protocol.metadata import FeatureLevelRecord
from serving.features import features_of


def test_the_quorums_level_stands_among_those_of_the_image() -> None:
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        FeatureLevelRecord(name="group.version", feature_level=1),
    ]
    image = replay_all(EMPTY_IMAGE, records).at(Provenance(7, 2, 5))
    features = features_of(image, 1)
    assert features.finalized == [
        ("group.version", 1, 1),
        ("kraft.version", 1, 1),
        ("metadata.version", 29, 29),
    ]
    assert features.finalized_epoch == 7
    assert [name for name, _, _ in features.supported] == sorted(SUPPORTED_FEATURES)
    assert [f[0] for f in features_of(image, 0).finalized] == ["group.version", "metadata.version"]
