"""B51: damaged or foreign files in the directory of a starting node."""

from __future__ import annotations

import asyncio
import posixpath
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from kraftbox.node import Node, build_node
from protocol.batch.header import crc_of, iter_batches
from protocol.batch.records import read_records
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.transport.client import Connection
from runtime.clock import SystemClock
from runtime.config import NodeConfig
from runtime.errors import StartupRefused
from storage.files import MemoryFiles, RealFiles
from testkit.memory.broker import batch
from testkit.memory.node import CLUSTER_ID, PROPERTIES, make_node
from testkit.processes.peer import produce_request

START_S = 30.0
META = "/data/meta.properties"
METADATA_LOG = "/data/__cluster_metadata-0/"
LOG = "/data/t-0/00000000000000000000.log"
TOPIC_ID = "/data/t-0/partition.metadata"
INDEXED = {"log.index.interval.bytes": "50"}
"""Each batch has entries in the indexes, so that damaged entries matter."""


def config(**settings: str) -> NodeConfig:
    return NodeConfig.parse({**PROPERTIES, **INDEXED, **settings})


def walk(files: MemoryFiles, folder: str = "/data") -> Iterator[str]:
    for name in files.listdir(folder):
        path = posixpath.join(folder, name)
        if files.isdir(path):
            yield from walk(files, path)
        else:
            yield path


def copy(files: MemoryFiles) -> MemoryFiles:
    """Return a copy of the tree in files of its own."""
    other = MemoryFiles()
    for path in walk(files):
        other.mkdirs(posixpath.dirname(path))
        write(other, path, files.read(path))
    return other


def write(files: MemoryFiles, path: str, data: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.append(data)
    file.close()


class Read(NamedTuple):
    """A consumer's view of t-0: log start and end, values by offset, and the count of wrong
    CRCs."""

    start: int
    end: int
    values: dict[int, bytes]
    damaged: int


WHOLE = Read(0, 10, {at: b"value %d" % at for at in range(10)}, 0)


async def read_back(node: Node) -> Read | None:
    """Read as a consumer does; None if there is no such topic.

    Raises: AssertionError if the node refuses, or omits offsets between its log start and end.
    """
    port = node.bound_port("PLAINTEXT")
    connection = await Connection.connect("127.0.0.1", port, "test", 5000)
    try:
        bounds = [await bound(connection, timestamp) for timestamp in (-2, -1)]
        if None in bounds:
            return None
        start, end = (one or 0 for one in bounds)
        values: dict[int, bytes] = {}
        at, damaged = start, 0
        while at < end:
            data = await fetched(connection, at)
            before = at
            for header, position in iter_batches(data):
                whole = data[position : position + header.size_bytes]
                at = header.next_offset
                if crc_of(whole, 0, len(whole)) != header.crc:
                    damaged += 1
                    continue
                values |= {one.offset: one.value or b"" for one in read_records(whole)}
            assert at > before, f"no whole batch at {at}, the end is {end}"
        for at in range(start, end):
            header, _ = next(iter_batches(await fetched(connection, at)))
            assert header.base_offset <= at < header.next_offset, f"{at} is skipped"
        return Read(start, end, values, damaged)
    finally:
        await connection.close()


async def bound(connection: Connection, timestamp: int) -> int | None:
    """Return an end of the log by its ListOffsets time, once the partition has a leader."""
    topic = ListOffsetsRequest.ListOffsetsTopic(
        name="t",
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        ],
    )
    async with asyncio.timeout(START_S):
        while True:
            known = MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name="t")],
                allow_auto_topic_creation=False,
            )
            (found,) = (await connection.request(known, version=12)).topics
            if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            reply = await connection.request(ListOffsetsRequest(topics=[topic]), version=7)
            (partition,) = reply.topics[0].partitions
            if not partition.error_code:
                return int(partition.offset)
            assert ErrorCode(partition.error_code).retriable, partition


async def fetched(connection: Connection, offset: int) -> bytes:
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        max_wait_ms=0,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])],
    )
    reply = await connection.request(request, version=12)
    (found,) = reply.responses[0].partitions
    assert not found.error_code, ErrorCode(found.error_code).name
    records = found.records or b""
    return b"".join(records) if isinstance(records, list) else bytes(records)


async def start(files: MemoryFiles | RealFiles, **settings: str) -> Read | None:
    """Start a node, read its records, and stop it. Raises: the error of its start."""
    node = build_node(config(**settings), clock=SystemClock(), rng=random.Random(1), files=files)
    try:
        async with asyncio.timeout(START_S):
            await node.start()
        found = await read_back(node)
    finally:
        await node.stop()
    if node.failed.done():
        raise node.failed.result()[1]
    return found


@pytest.fixture(scope="module")
def used() -> MemoryFiles:
    """Return the directory of a node that has served and was stopped."""
    files = MemoryFiles()

    async def serve() -> None:
        node = make_node(files, INDEXED)
        await node.start()
        port = node.bound_port("PLAINTEXT")
        connection = await Connection.connect("127.0.0.1", port, "test", 5000)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        for at in range(0, 10, 2):
            data = batch(WHOLE.values[at], WHOLE.values[at + 1])
            reply = await connection.request(produce_request({("t", 0): data}), version=12)
            while reply.responses[0].partition_responses[0].error_code:
                reply = await connection.request(produce_request({("t", 0): data}), version=12)
        await connection.request(
            OffsetCommitRequest(
                group_id="g",
                topics=[
                    OffsetCommitRequest.OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0)
                        ],
                    )
                ],
            ),
            version=8,
        )
        await connection.close()
        await node.stop()

    asyncio.run(serve())
    return files


async def test_b51_the_directory_as_it_was_left(used: MemoryFiles) -> None:
    assert await start(copy(used)) == WHOLE


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("node.id=2", "belongs to node 2, this is node 1"),
        ("node.id=../..", "node.id='../..' is not a node id"),
        ("node.id=-1", "node.id='-1' is not a node id"),
        ("node.id=", "node.id='' is not a node id"),
        ("version=2", "version=2"),
        ("version=..", "version=.."),
        ("cluster.id=", "cluster.id: a cluster id must not be empty"),
        (f"cluster.id={'x' * 32768}", "cluster.id: a cluster id may have 32767 bytes"),
        ("directory.id=../../etc/x", "directory.id"),
        ("directory.id=AAAAAAAAAAAAAAAAAAAAAA", "is reserved"),
    ],
)
async def test_b51_meta_properties_that_lie(used: MemoryFiles, line: str, says: str) -> None:
    files = copy(used)
    key = line.partition("=")[0]
    lines = [one for one in files.read(META).decode().splitlines() if not one.startswith(key)]
    write(files, META, "\n".join([*lines, line, ""]).encode())
    with pytest.raises(StartupRefused) as refused:
        await start(files)
    assert says in str(refused.value)
    assert "/data" in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"\xff\xfe\xfd", b"no properties"])
async def test_b51_invalid_meta_properties_are_refused(used: MemoryFiles, content: bytes) -> None:
    files = copy(used)
    write(files, META, content)
    with pytest.raises(StartupRefused, match=r"/data/meta\.properties"):
        await start(files)


async def test_b51_a_directory_that_was_never_formatted() -> None:
    files = MemoryFiles()
    files.mkdirs("/data")
    with pytest.raises(StartupRefused, match="not formatted"):
        await start(files)


async def test_b51_the_metadata_log_of_another_cluster(used: MemoryFiles) -> None:
    files = copy(used)
    text = files.read(META).decode().replace(CLUSTER_ID, "AnotherClusterAAAAAAAA")
    files.mkdirs("/meta")
    write(files, "/meta/meta.properties", text.encode())
    with pytest.raises(StartupRefused, match="belongs to cluster"):
        await start(files, **{"metadata.log.dir": "/meta"})


async def test_b51_two_nodes_on_one_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = str(tmp_path_factory.mktemp("shared"))
    files = RealFiles()
    settings = {"log.dirs": directory}
    node = make_node(files, settings)  # type: ignore[arg-type]
    await node.start()
    with pytest.raises(StartupRefused, match="is in use"):
        await start(files, **settings)
    await node.stop()
    await start(files, **settings)
    files.close()


@pytest.mark.parametrize(
    "name", ["..-0", "a b-0", "-0", "t-", "t-00", "t-99999999999", "t", "%2e%2e-0"]
)
async def test_b51_folders_that_are_no_partition(used: MemoryFiles, name: str) -> None:
    """They are left unchanged, whatever they are; a node may refuse to start with them."""
    files = copy(used)
    files.mkdirs(f"/data/{name}")
    write(files, f"/data/{name}/00000000000000000000.log", b"precious")
    try:
        assert await start(files) == WHOLE
    except StartupRefused as error:
        assert name in str(error)
    assert files.read(f"/data/{name}/00000000000000000000.log") == b"precious"


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))] if data else b""


def flip(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(3):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def last_byte(data: bytes, rng: random.Random) -> bytes:
    """Change the last byte, which belongs to no length or offset: only a CRC detects it."""
    return data[:-1] + bytes([data[-1] ^ 1]) if data else b"\x00"


def garbage(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(len(data) or 100)


def empty(data: bytes, rng: random.Random) -> bytes:
    return b""


def hostile_text(data: bytes, rng: random.Random) -> bytes:
    return b"0\n1\n.. ../../etc/passwd 99999999999999999999\n"


Damage = Callable[[bytes, random.Random], bytes]


@pytest.mark.parametrize("damage", [cut, flip, last_byte, garbage, empty, hostile_text])
@pytest.mark.parametrize("clean", [True, False])
async def test_b51_any_file_may_be_broken(used: MemoryFiles, damage: Damage, clean: bool) -> None:
    """Each file in turn: the node starts, or its error names the damaged file in one line.

    A node that has started has every record that was not in the damaged file.
    """
    rng = random.Random(f"{damage.__name__} {clean}")
    for path in walk(used):
        if path.endswith("/.lock"):
            continue
        files = copy(used)
        if not clean:
            files.unlink("/data/.kafka_cleanshutdown")
        if not files.exists(path):
            continue
        write(files, path, damage(files.read(path), rng))
        try:
            judge(path, files, used.read(LOG), await start(files), clean=clean)
        except StartupRefused as error:
            assert "/data" in str(error), path
            assert "\n" not in str(error)
        except Exception as error:
            raise AssertionError(f"{path}: {error!r}") from error


def judge(
    path: str, files: MemoryFiles, records: bytes, found: Read | None, *, clean: bool
) -> None:
    """Check the result; `path` was damaged before the start, and no other file may have cost
    records."""
    if found is None or (path == TOPIC_ID and found != WHOLE):
        # A node that lost the topic's metadata, or assigns the log to another topic, may not delete
        # the records.
        assert path == TOPIC_ID or path.startswith(METADATA_LOG), path
        assert records in [files.read(one) for one in walk(files)]
    elif path == LOG:
        # The remaining records begin at the start, and after a crash every batch of them was read.
        assert found.start == 0
        assert found.values.items() <= WHOLE.values.items()
        assert found.damaged == 0 or clean
        if not found.damaged:
            assert list(found.values) == list(range(found.end))
    else:
        assert found == WHOLE
