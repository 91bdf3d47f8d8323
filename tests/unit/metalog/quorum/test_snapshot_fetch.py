"""Snapshots fetched in pieces: resumed after an interruption, restarted at another node."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from metalog.image.values import EMPTY_IMAGE, Provenance
from metalog.quorum.core.messages import InstallSnapshot, OffsetAndEpoch
from metalog.quorum.core.voters import VoterEndpoint
from metalog.quorum.log import DIRECTORY_NAME, MetadataLog, MetadataLogConfig
from metalog.quorum.snapshot_transfer import NotStored, SnapshotFetcher, SnapshotWriter
from metalog.quorum.snapshots import SnapshotReader, snapshot_parts
from protocol.batch.header import CRC_START, iter_batches
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.metadata import TopicRecord
from runtime.clock import ManualClock
from storage.files import MemoryFiles
from testkit.memory.quorum_nodes import make_config, sole_voter

ID = OffsetAndEpoch(40, 3)
HERE = VoterEndpoint("localhost", 9093)
PIECE = 100


def content(name: str) -> bytes:
    records = [
        (TopicRecord(name=f"{name}{i}", topic_id=i.to_bytes(16, "big")), 0) for i in range(9)
    ]
    return b"".join(snapshot_parts(ID, records, last_contained_timestamp_ms=1, timestamp_ms=2))


class Leader:
    """A stand-in for the peers: serves one snapshot, and breaks off after `pieces`."""

    def __init__(self, data: bytes, pieces: int = 1000) -> None:
        self.data = data
        self.pieces = pieces
        self.positions: list[int] = []

    async def request(self, _to: VoterEndpoint, message: FetchSnapshotRequest, **_: Any) -> Any:
        position = message.topics[0].partitions[0].position
        self.positions.append(position)
        if self.pieces == 0:
            raise ConnectionResetError("gone")
        self.pieces -= 1
        if not self.data:
            return FetchSnapshotResponse(error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
        piece = FetchSnapshotResponse.PartitionSnapshot(
            size=len(self.data),
            position=position,
            unaligned_records=self.data[position : position + PIECE],
        )
        topic = FetchSnapshotResponse.TopicSnapshot(partitions=[piece])
        return FetchSnapshotResponse(topics=[topic])


class Follower:
    def __init__(self, leader: Leader, files: Any = None) -> None:
        self.files = files or MemoryFiles()
        limits = MetadataLogConfig()
        self.log = MetadataLog.open(self.files, "/data", ManualClock(), limits, sole_voter())
        peers: Any = leader
        self.fetcher = SnapshotFetcher(self.files, self.log, peers, make_config("/data"))
        self.peers = leader
        self.heard = 0

    async def fetch(self, node_id: int = 2) -> None:
        await self.fetcher.fetch(InstallSnapshot(1, node_id, 3, ID), HERE, self._hear)

    def _hear(self) -> None:
        self.heard += 1

    def loaded(self) -> list[Any]:
        reader = SnapshotReader.open(self.files, self.log.snapshots.path(ID), ID)
        return [record.name for record in reader.records()]


async def test_interrupted_snapshot_fetch_resumes() -> None:
    leader = Leader(content("a"), pieces=3)
    follower = Follower(leader)
    with pytest.raises(ConnectionResetError):
        await follower.fetch()
    assert leader.positions == [0, PIECE, 2 * PIECE, 3 * PIECE]
    assert follower.heard == 3, "each piece is a sign of life of the leader"
    leader.pieces = 1000
    leader.positions.clear()
    await follower.fetch()
    assert leader.positions[0] == 3 * PIECE
    assert follower.loaded() == [f"a{i}" for i in range(9)]


async def test_another_nodes_snapshot_is_fetched_from_the_beginning() -> None:
    """Another node's snapshot of the same state has other bytes."""
    first = Leader(content("a"), pieces=3)
    follower = Follower(first)
    with pytest.raises(ConnectionResetError):
        await follower.fetch()
    first.data, first.pieces = content("b"), 1000
    first.positions.clear()
    await follower.fetch(node_id=3)
    assert first.positions[0] == 0
    assert follower.loaded() == [f"b{i}" for i in range(9)]


async def test_one_that_is_gone_is_not_gone_on_with() -> None:
    leader = Leader(content("a"), pieces=3)
    follower = Follower(leader)
    with pytest.raises(ConnectionResetError):
        await follower.fetch()
    leader.data, leader.pieces = b"", 1000
    with pytest.raises(ApiError):
        await follower.fetch()
    leader.data = content("c")
    leader.positions.clear()
    await follower.fetch()
    assert leader.positions[0] == 0
    assert follower.loaded() == [f"c{i}" for i in range(9)]


def covered(data: bytes) -> list[int]:
    """Return every fortieth position; in batches only those that the CRC covers."""
    return [
        at
        for header, begin in iter_batches(data)
        for at in range(begin + CRC_START, begin + header.size_bytes, 40)
    ]


@pytest.mark.parametrize("at", covered(content("a")))
async def test_damaged_fetched_snapshot_is_refused_and_fetched_again(at: int) -> None:
    """M13: until its CRCs are checked, no byte is replayed and the file has no final name."""
    whole = content("a")
    leader = Leader(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
    follower = Follower(leader)
    with pytest.raises(ProtocolError):
        await follower.fetch()
    assert not follower.files.exists(follower.log.snapshots.path(ID))
    leader.data = whole
    leader.positions.clear()
    await follower.fetch()
    assert leader.positions[0] == 0
    assert follower.loaded() == [f"a{i}" for i in range(9)]


async def test_one_that_ends_before_its_footer_is_refused() -> None:
    whole = content("a")
    sizes = [header.size_bytes for header, _ in iter_batches(whole)]
    follower = Follower(Leader(whole[: -sizes[-1]]))
    with pytest.raises(ProtocolError):
        await follower.fetch()
    assert not follower.files.exists(follower.log.snapshots.path(ID))


class FullDisk(MemoryFiles):
    """A disk that accepts `room` bytes; it counts open files."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.opened = 0

    def open(self, path: str, create: bool = False) -> Any:
        file = super().open(path, create)
        if not path.endswith(".part"):
            return file
        disk = self
        disk.opened += 1

        class Held:
            path = file.path
            size, pread, truncate = file.size, file.pread, file.truncate
            closed = False

            def append(self, data: bytes) -> int:
                if len(data) > disk.room:
                    raise OSError(errno.ENOSPC, "no space left on device", path)
                disk.room -= len(data)
                return file.append(data)

            def close(self) -> None:
                disk.opened -= not self.closed
                self.closed = True

        return Held()

    def parts(self) -> list[str]:
        return [name for name in self.listdir(f"/data/{DIRECTORY_NAME}") if name.endswith(".part")]


async def test_a_full_disk_keeps_neither_part_nor_descriptor_of_a_fetch() -> None:
    leader = Leader(content("a"))
    follower = Follower(leader, FullDisk(250))
    with pytest.raises(NotStored):
        await follower.fetch()
    assert (follower.files.parts(), follower.files.opened) == ([], 0)
    follower.files.room = 1 << 20
    leader.positions.clear()
    await follower.fetch()
    assert leader.positions[0] == 0
    assert follower.loaded() == [f"a{i}" for i in range(9)]
    assert follower.files.opened == 0


async def test_a_fetch_that_breaks_off_keeps_its_part_and_no_descriptor() -> None:
    follower = Follower(Leader(content("a"), pieces=2), FullDisk(1 << 20))
    with pytest.raises(ConnectionResetError):
        await follower.fetch()
    assert (len(follower.files.parts()), follower.files.opened) == (1, 0)


async def test_a_full_disk_keeps_neither_part_nor_descriptor_of_a_write() -> None:
    files = FullDisk(250)
    log = MetadataLog.open(files, "/data", ManualClock(), MetadataLogConfig(), sole_voter())
    image = EMPTY_IMAGE.at(Provenance(9, 1, 0))
    writer = SnapshotWriter(files, log, ManualClock())
    records = [(TopicRecord(name=f"t{i}", topic_id=i.to_bytes(16, "big")), 0) for i in range(999)]
    with pytest.raises(OSError, match="no space"):
        await writer.write(image, records)
    assert (files.parts(), files.opened, list(log.snapshots.ids)) == ([], 0, [])
    files.room = 1 << 20
    assert await writer.write(image, records) == OffsetAndEpoch(10, 1)
    assert (files.parts(), files.opened) == ([], 0)
