from __future__ import annotations

from typing import Any

import pytest

from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from metalog.quorum.snapshots import (
    CorruptSnapshot,
    SnapshotReader,
    list_snapshots,
    parse_snapshot_name,
    remove_leftovers,
    snapshot_name,
    snapshot_parts,
)
from protocol.errors import ProtocolError
from protocol.metadata import FeatureLevelRecord, TopicRecord
from storage.files import MemoryFiles

ID = OffsetAndEpoch(1234, 7)
VOTERS = VoterSet(
    [Voter(ReplicaKey(1, b"d" * 16), (("CONTROLLER", VoterEndpoint("localhost", 9093)),), 0, 1)]
)


def records(count: int) -> list[tuple[Any, int]]:
    return [(TopicRecord(name=f"t{i}", topic_id=i.to_bytes(16, "big")), 0) for i in range(count)]


def encoded(count: int = 3, **kwargs: Any) -> bytes:
    return b"".join(
        snapshot_parts(
            ID, records(count), last_contained_timestamp_ms=55, timestamp_ms=66, **kwargs
        )
    )


def test_names() -> None:
    assert snapshot_name(ID) == "00000000000000001234-0000000007.checkpoint"
    assert parse_snapshot_name(snapshot_name(ID)) == ID
    for other in ("bootstrap.checkpoint", snapshot_name(ID) + ".part", "1-1.checkpoint"):
        assert parse_snapshot_name(other) is None


@pytest.mark.parametrize("count", [0, 1, 256, 257, 1000])
def test_snapshot_survives_round_trip(count: int) -> None:
    reader = SnapshotReader(encoded(count, voters=VOTERS, kraft_version=1), ID)
    assert reader.last_contained_timestamp_ms == 55
    assert (reader.voters, reader.kraft_version) == (VOTERS, 1)
    assert list(reader.records()) == [record for record, _ in records(count)]


def test_static_voters_are_not_in_a_snapshot() -> None:
    reader = SnapshotReader(encoded(voters=VOTERS, kraft_version=0), ID)
    assert reader.voters is None and reader.kraft_version == 0


def test_a_snapshot_cut_anywhere_is_corrupt() -> None:
    data = encoded(2)
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            list(SnapshotReader(data[:size], ID).records())


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(encoded(2))
    data[len(data) // 2] ^= 1
    with pytest.raises(ProtocolError):
        list(SnapshotReader(bytes(data), ID).records())


def test_snapshot_with_data_after_footer_is_corrupt() -> None:
    data = encoded(1)
    with pytest.raises(CorruptSnapshot, match="after its footer"):
        list(SnapshotReader(data + data, ID).records())


def test_records_without_a_header_are_no_snapshot() -> None:
    parts = list(
        snapshot_parts(
            ID,
            [(FeatureLevelRecord(name="x", feature_level=1), 0)],
            last_contained_timestamp_ms=0,
            timestamp_ms=0,
        )
    )
    with pytest.raises(CorruptSnapshot, match="control batch"):
        SnapshotReader(parts[1], ID)
    with pytest.raises(CorruptSnapshot, match="SnapshotFooter"):
        SnapshotReader(parts[2], ID)


def test_leftovers_of_a_crash_go() -> None:
    files = MemoryFiles()
    files.mkdirs("/d")
    for name in ("a.log", snapshot_name(ID), snapshot_name(ID) + ".part", "x.checkpoint.deleted"):
        files.touch(f"/d/{name}")
    remove_leftovers(files, "/d")
    assert files.listdir("/d") == sorted(["a.log", snapshot_name(ID)])
    assert list_snapshots(files, "/d") == [ID]
