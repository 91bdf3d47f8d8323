"""Known bugs with snapshots of the metadata: 15 of the list of known bugs.

14618 and 15078 are decisions of the core: see `test_quorum_bugs`.
"""

from __future__ import annotations

import asyncio

import pytest

from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.log import MetadataLogConfig
from metalog.quorum.snapshots import SnapshotReader, list_snapshots
from protocol.metadata import FenceBrokerRecord, TopicRecord
from runtime.errors import InvariantViolated, StartupRefused
from storage.files import LossyFiles, MemoryFiles
from testkit.memory.quorum_nodes import RunningQuorum, make_config

DIRECTORY = "/data/__cluster_metadata-0"
OFTEN = MetadataLogConfig(max_bytes_between_snapshots=1000)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big"))


async def with_snapshot(files: MemoryFiles) -> OffsetAndEpoch:
    """Return a log that begins with a snapshot, made by a node that has stopped."""
    async with RunningQuorum(files) as q:
        for number in range(20):
            await q.commit(topic(number))
        written = await q.node.create_snapshot(q.loader.image)
        assert written is not None
        q.node.log.clean(1 << 50)
        return written


async def test_14240_a_log_that_begins_later_needs_a_snapshot_for_what_was_before() -> None:
    """The start fails before any part of the node acts on half of the metadata."""
    files = MemoryFiles()
    snapshot = await with_snapshot(files)
    async with RunningQuorum(files) as q:
        assert q.node.log.latest_snapshot == snapshot
        await q.commit(topic(100))
        assert len(q.loader.image.topics.by_id) == 21
        segment = next(name for name in files.listdir(DIRECTORY) if name.endswith(".log"))
    path = q.node.log.snapshots.path(snapshot)
    files.unlink(path)
    if segment == f"{0:020d}.log":
        # As if cleaning had removed the first segment, too.
        files.rename(f"{DIRECTORY}/{segment}", f"{DIRECTORY}/{snapshot.offset:020d}.log")
    with pytest.raises(StartupRefused, match="no snapshot"):
        await RunningQuorum(files).node.start()


class DiskThatGoes:
    """A disk that counts operations while `counting`, and fails at the `last`."""

    def __init__(self, last: int) -> None:
        self.left = last
        self.counting = False

    def __call__(self, _kind: str, _path: str) -> None:
        self.left -= self.counting
        if self.counting and self.left == 0:
            raise OSError(5, "the disk is gone")


async def test_13078_a_snapshot_has_its_name_only_when_it_is_whole_and_durable() -> None:
    """Whichever operation of its writing is the last: a file with the final name can be read to its
    end."""
    seen, survived = 0, False
    for last in range(1, 200):
        disk, fate = MemoryFiles(), DiskThatGoes(last)
        files = LossyFiles(disk, on_op=fate)
        q = RunningQuorum(files)
        await q.node.start()
        for number in range(3):
            await q.commit(topic(number))
        fate.counting = True
        try:
            await q.node.create_snapshot(q.loader.image)
            survived = True
        except OSError:
            survived = False
        fate.counting = False
        files.crash(None)
        for snapshot_id in list_snapshots(disk, DIRECTORY):
            seen += 1
            path = q.node.log.snapshots.path(snapshot_id)
            reader = SnapshotReader.open(disk, path, snapshot_id)
            assert len(list(reader.records())) == 3
        await q.supervisor.close()
        if survived:
            break
    assert survived and seen >= 1


async def test_14203_after_an_error_in_the_metadata_no_snapshot_is_written() -> None:
    """A snapshot would make the result of a broken replay permanent."""
    files = MemoryFiles()
    config: QuorumConfig = make_config("/data", log=OFTEN)
    async with RunningQuorum(files, config=config) as q:
        await q.commit(topic(0))
        q.node.append(q.node.core.epoch, [FenceBrokerRecord(id=3, epoch=4)])
        await q.until(lambda: bool(q.failures))
        assert isinstance(q.failures[0][1], InvariantViolated)
        before = q.loader.image
        for number in range(1, 40):
            q.node.append(q.node.core.epoch, [topic(number)])
        for _ in range(500):
            await asyncio.sleep(0)
        assert q.loader.image is before
        assert list_snapshots(files, DIRECTORY) == []
