"""First records of an empty metadata log: their sources, and files that stop the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from metalog.finalised import check_features, finalised_features
from metalog.first_records import read_first_records
from metalog.image.first_records import first_records_problem
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterSet
from metalog.quorum.snapshots import (
    BOOTSTRAP_FILE,
    FIRST_SNAPSHOT,
    snapshot_name,
    snapshot_parts,
    write_snapshot,
)
from metalog.supported import SUPPORTED_FEATURES
from protocol.metadata import FeatureLevelRecord, UserScramCredentialRecord
from protocol.schema import MetadataRecord
from runtime.errors import StartupRefused
from storage.files import MemoryFiles

SNAPSHOT = f"/data/__cluster_metadata-0/{snapshot_name(FIRST_SNAPSHOT)}"
BOOTSTRAP = f"/data/{BOOTSTRAP_FILE}"
VOTERS = VoterSet([Voter(ReplicaKey(1, b"d" * 16), (), 0, 1)])


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdirs("/data/__cluster_metadata-0")
    return files


def level(name: str, number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=number)


def credential(name: str) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(name=name, mechanism=1, salt=b"s" * 16, iterations=4096)


def data(records: Sequence[MetadataRecord]) -> list[bytes]:
    """Return the batches of a snapshot file."""
    versioned = [(record, 0) for record in records]
    return list(
        snapshot_parts(
            FIRST_SNAPSHOT,
            versioned,
            last_contained_timestamp_ms=0,
            timestamp_ms=0,
            voters=VOTERS,
            kraft_version=1,
        )
    )


def write(files: MemoryFiles, path: str, *records: MetadataRecord) -> None:
    write_snapshot(files, path, data(records))


V25 = level("metadata.version", 25)
ALICE = credential("alice")


def test_first_records_of_the_snapshot_precede_the_bootstrap_file(files: MemoryFiles) -> None:
    """KIP-1170: Kafka 4.4 writes the first records into the 0-0 snapshot and prefers them."""
    write(files, BOOTSTRAP, level("metadata.version", 29))
    assert read_first_records(files, "/data") == [level("metadata.version", 29)]
    write(files, SNAPSHOT)
    assert read_first_records(files, "/data") == [level("metadata.version", 29)]
    write(files, SNAPSHOT, V25, ALICE)
    assert read_first_records(files, "/data") == [V25, ALICE]


def test_first_records_without_any_file_are_the_defaults() -> None:
    """A directory without a file of first records gets the levels that this build supports."""
    levels = {r.name: r.feature_level for r in read_first_records(MemoryFiles(), "/data")}  # type: ignore[attr-defined]
    highest = {name: versions.max_level for name, versions in SUPPORTED_FEATURES.items()}
    assert levels == {name: highest[name] for name in highest if name != "kraft.version"}


def test_first_records_may_be_a_hundred_thousand_credentials(files: MemoryFiles) -> None:
    """Nothing limits the number of credentials that an operator gives to `kafka-storage format`."""
    crowd = [credential(f"user{index}") for index in range(100_000)]
    write(files, SNAPSHOT, V25, *crowd)
    assert read_first_records(files, "/data") == [V25, *crowd]


def _flip(whole: bytes) -> bytes:
    return whole[:90] + bytes([whole[90] ^ 1]) + whole[91:]


DAMAGES: dict[str, Callable[[list[bytes]], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda parts: b"".join(parts)[:-9],
    "truncated to its header": lambda parts: parts[0],
    "wrong CRC": lambda parts: _flip(b"".join(parts)),
    "no footer": lambda parts: b"".join(parts[:-1]),
    "records after the footer": lambda parts: b"".join([*parts, parts[1]]),
    "no snapshot": lambda _: b"nonsense",
}


@pytest.mark.parametrize("path", [SNAPSHOT, BOOTSTRAP])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_of_first_records_stops_the_start(
    files: MemoryFiles, path: str, damage: str
) -> None:
    """A start without the operator's levels and credentials would be permanent: it is refused."""
    files.write_atomic(path, DAMAGES[damage](data([V25, ALICE])))
    for read in (read_first_records, finalised_features):
        with pytest.raises(StartupRefused) as refused:
            read(files, "/data")
        assert path in str(refused.value)


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([V25, level("queue.version", 1)], "sets the unknown feature 'queue.version'"),
        ([V25, level("share.version", 1), level("share.version", 0)], "share.version twice"),
        ([V25, V25], "metadata.version twice"),
        ([ALICE], "sets no metadata.version"),
    ],
)
def test_invalid_first_records_stop_the_start(
    files: MemoryFiles, records: list[MetadataRecord], problem: str
) -> None:
    """A whole file whose records contradict each other is damaged, too."""
    assert problem in (first_records_problem(records) or "")
    write(files, SNAPSHOT, *records)
    with pytest.raises(StartupRefused) as refused:
        read_first_records(files, "/data")
    assert SNAPSHOT in str(refused.value)
    assert problem in str(refused.value)


def test_first_records_above_the_supported_level_stop_the_start(files: MemoryFiles) -> None:
    """Level 34 is for Kafka's own tests; the level is compared like that of a log."""
    write(files, SNAPSHOT, level("metadata.version", 34))
    levels = finalised_features(files, "/data")
    assert levels == {"metadata.version": 34}
    with pytest.raises(StartupRefused, match="level 34"):
        check_features(levels, SUPPORTED_FEATURES, "/data")
