"""Finalised features of a directory, read before any log in it is opened."""

from __future__ import annotations

import pytest

from metalog.finalised import check_features, finalised_features
from metalog.image.values import VersionRange
from metalog.quorum.batches import build_metadata_batch
from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.snapshots import (
    BOOTSTRAP_FILE,
    FIRST_SNAPSHOT,
    snapshot_name,
    snapshot_parts,
    write_snapshot,
)
from metalog.supported import SUPPORTED_FEATURES
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.schema import MetadataRecord
from runtime.errors import StartupRefused
from storage.files import MemoryFiles

LOG = "/data/__cluster_metadata-0"
BUILT = {"metadata.version": VersionRange(7, 30), "kraft.version": VersionRange(0, 1)}


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdirs("/data")
    return files


def level(name: str, number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=number)


def snapshot(files: MemoryFiles, path: str, *records: MetadataRecord) -> None:
    parts = snapshot_parts(
        FIRST_SNAPSHOT,
        [(record, 0) for record in records],
        last_contained_timestamp_ms=0,
        timestamp_ms=0,
    )
    write_snapshot(files, path, parts)


def segment(files: MemoryFiles, base: int, *batches: list[MetadataRecord], torn: int = 0) -> None:
    files.mkdirs(LOG)
    data, offset = b"", base
    for records in batches:
        pairs = [(record, 0) for record in records]
        data += build_metadata_batch(pairs, offset, epoch=1, timestamp_ms=0)
        offset += len(records)
    files.write_atomic(f"{LOG}/{base:020d}.log", data[: len(data) - torn])


def test_a_folder_that_a_crash_left_empty_has_what_formatting_left(files: MemoryFiles) -> None:
    snapshot(files, f"/data/{BOOTSTRAP_FILE}", level("metadata.version", 30))
    files.mkdirs(LOG)
    assert finalised_features(files, "/data") == {"metadata.version": 30}


def test_a_new_directory_has_what_formatting_left(files: MemoryFiles) -> None:
    assert finalised_features(files, "/data") == {
        "metadata.version": 33,
        "eligible.leader.replicas.version": 1,
    }
    formatted = [level("metadata.version", 29), level("share.version", 1)]
    snapshot(files, f"/data/{BOOTSTRAP_FILE}", *formatted)
    assert finalised_features(files, "/data") == {"metadata.version": 29, "share.version": 1}


def test_a_broken_bootstrap_file_stops_the_start(files: MemoryFiles) -> None:
    files.write_atomic(f"/data/{BOOTSTRAP_FILE}", b"nonsense")
    with pytest.raises(StartupRefused, match=r"bootstrap\.checkpoint"):
        finalised_features(files, "/data")


def test_finalised_features_of_log_override_bootstrap_file(files: MemoryFiles) -> None:
    snapshot(files, f"/data/{BOOTSTRAP_FILE}", level("a.version", 2))
    segment(
        files,
        0,
        [level("metadata.version", 30), level("a.version", 2)],
        [TopicRecord(name="t", topic_id=bytes(16))],
        [level("b.version", 1)],
        [level("a.version", 0)],
    )
    assert finalised_features(files, "/data") == {"metadata.version": 30, "b.version": 1}


def test_the_latest_snapshot_and_the_log_behind_it(files: MemoryFiles) -> None:
    segment(files, 0, [level("a.version", 1)], [level("old.version", 1)])
    segment(files, 2, [level("a.version", 2)], [level("c.version", 1)])
    latest = snapshot_name(OffsetAndEpoch(3, 1))
    snapshot(files, f"{LOG}/{latest}", level("metadata.version", 30), level("a.version", 2))
    assert finalised_features(files, "/data") == {
        "metadata.version": 30,
        "a.version": 2,
        "c.version": 1,
    }


def test_finalised_features_ignore_torn_end(files: MemoryFiles) -> None:
    segment(files, 0, [level("metadata.version", 30)], [level("a.version", 1)], torn=3)
    assert finalised_features(files, "/data") == {"metadata.version": 30}
    files.write_atomic(f"{LOG}/{5:020d}.log", b"\0" * 100)
    assert finalised_features(files, "/data") == {"metadata.version": 30}


def test_levels_that_are_built() -> None:
    check_features({"metadata.version": 30, "kraft.version": 1}, BUILT, "/data")
    check_features({}, BUILT, "/data")
    check_features({"eligible.leader.replicas.version": 1}, SUPPORTED_FEATURES, "/data")


def test_levels_that_are_not_built_are_all_named() -> None:
    levels = {"metadata.version": 99, "group.version": 1}
    with pytest.raises(StartupRefused) as refused:
        check_features(levels, SUPPORTED_FEATURES, "/data")
    said = str(refused.value)
    assert "group.version at level 1 (this node supports 0 to 0)" in said
    assert "metadata.version at level 99" in said
    assert "--feature group.version=0)" in said


def test_levels_of_a_damaged_snapshot_are_those_of_the_log_that_stands_for_it(
    files: MemoryFiles,
) -> None:
    segment(files, 0, [level("group.version", 1)], [level("share.version", 1)])
    files.write_atomic(f"{LOG}/{snapshot_name(OffsetAndEpoch(1, 1))}", b"")
    assert finalised_features(files, "/data") == {"group.version": 1, "share.version": 1}


def test_levels_of_the_first_snapshot_count_only_for_an_empty_log(files: MemoryFiles) -> None:
    """Kafka 4.3.1 starts on a directory of 4.4.0 and ignores its 0-0 snapshot (KIP-1170)."""
    files.mkdirs(LOG)
    formatted = [level("metadata.version", 33), level("share.version", 1)]
    snapshot(files, f"{LOG}/{snapshot_name(FIRST_SNAPSHOT)}", *formatted)
    assert finalised_features(files, "/data") == {"metadata.version": 33, "share.version": 1}
    segment(files, 0, [level("metadata.version", 30)])
    assert finalised_features(files, "/data") == {"metadata.version": 30}


@pytest.mark.parametrize(
    ("name", "level_", "high", "possible"),
    [
        ("metadata.version", 29, 28, True),
        ("metadata.version", 31, 30, True),
        ("metadata.version", 33, 31, False),
        ("metadata.version", 33, 30, False),
        ("metadata.version", 24, 22, False),
        ("metadata.version", 99, 33, False),
        ("group.version", 1, 0, True),
        ("later.version", 1, 0, False),
    ],
)
def test_refusal_at_start_advises_only_possible_downgrades(
    name: str, level_: int, high: int, possible: bool
) -> None:
    """Kafka 4.4.0 refuses a downgrade across a level that changed the metadata: 33 stays 33."""
    supported = {name: VersionRange(0, high)}
    with pytest.raises(StartupRefused) as refused:
        check_features({name: level_}, supported, "/data")
    said = str(refused.value)
    assert f"{name} at level {level_} (this node supports 0 to {high})" in said
    assert (f"kafka-features downgrade --feature {name}={high})" in said) is possible
    assert ("start a release of Kraftbox that supports" in said) is not possible
