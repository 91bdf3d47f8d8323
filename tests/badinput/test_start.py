"""B51: what lies in the directory when a node starts."""

from __future__ import annotations

import asyncio
import posixpath
import random
from collections.abc import Callable, Iterator

import pytest

from kraftbox.node import build_node
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.transport.client import Connection
from runtime.clock import SystemClock
from runtime.config import NodeConfig
from runtime.errors import StartupRefused
from storage.files import MemoryFiles, RealFiles
from tests.badinput.batches import batch
from tests.badinput.peer import produce_request
from tests.unit.kraftbox.memory_node import CLUSTER_ID, PROPERTIES, make_node

START_S = 30.0
META = "/data/meta.properties"


def config(**settings: str) -> NodeConfig:
    return NodeConfig.parse({**PROPERTIES, **settings})


def walk(files: MemoryFiles, folder: str = "/data") -> Iterator[str]:
    for name in files.listdir(folder):
        path = posixpath.join(folder, name)
        if files.isdir(path):
            yield from walk(files, path)
        else:
            yield path


def copy(files: MemoryFiles) -> MemoryFiles:
    """The same tree in files of its own."""
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


async def start(files: MemoryFiles | RealFiles, **settings: str) -> None:
    """Start a node and stop it; raises what its start raised."""
    node = build_node(config(**settings), clock=SystemClock(), rng=random.Random(1), files=files)
    try:
        async with asyncio.timeout(START_S):
            await node.start()
    finally:
        await node.stop()
    if node.failed.done():
        raise node.failed.result()[1]


@pytest.fixture(scope="module")
def used() -> MemoryFiles:
    """The directory of a node that has served and was stopped."""
    files = MemoryFiles()

    async def serve() -> None:
        node = make_node(files)
        await node.start()
        port = node.bound_port("PLAINTEXT")
        connection = await Connection.connect("127.0.0.1", port, "test", 5000)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        for _ in range(5):
            reply = await connection.request(produce_request({("t", 0): batch()}), version=12)
            while reply.responses[0].partition_responses[0].error_code:
                reply = await connection.request(produce_request({("t", 0): batch()}), version=12)
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
    await start(copy(used))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("node.id=2", "belongs to node 2, this is node 1"),
        ("node.id=../..", "node.id='../..' is not a node id"),
        ("node.id=-1", "node.id='-1' is not a node id"),
        ("node.id=", "node.id='' is not a node id"),
        ("version=2", "version=2"),
        ("version=..", "version=.."),
        ("cluster.id=", "cluster.id='' is not a cluster id"),
        ("cluster.id=a\\nb", "is not a cluster id"),
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
async def test_b51_meta_properties_that_are_none(used: MemoryFiles, content: bytes) -> None:
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
    """Whatever they are, they are not touched; a node may refuse to start over them."""
    files = copy(used)
    files.mkdirs(f"/data/{name}")
    write(files, f"/data/{name}/00000000000000000000.log", b"precious")
    try:
        await start(files)
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


def garbage(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(len(data) or 100)


def empty(data: bytes, rng: random.Random) -> bytes:
    return b""


def hostile_text(data: bytes, rng: random.Random) -> bytes:
    return b"0\n1\n.. ../../etc/passwd 99999999999999999999\n"


Damage = Callable[[bytes, random.Random], bytes]


@pytest.mark.parametrize("damage", [cut, flip, garbage, empty, hostile_text])
@pytest.mark.parametrize("clean", [True, False])
async def test_b51_any_file_may_be_broken(used: MemoryFiles, damage: Damage, clean: bool) -> None:
    """Each file in turn: the node starts, or says in one line which file keeps it from it."""
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
            await start(files)
        except StartupRefused as error:
            assert "/data" in str(error), path
            assert "\n" not in str(error)
        except Exception as error:
            raise AssertionError(f"{path}: {error!r}") from error
