"""__consumer_offsets on a running node: compacted, without loss of the groups' offsets."""

from __future__ import annotations

from collections import Counter

import pytest

from kraftbox.node import Node
from protocol.batch.records import read_records
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.transport.client import Connection
from storage.files import MemoryFiles
from storage.log.log import Log
from testkit.memory.metric_traffic import connect, create_topic
from testkit.memory.node import running_node
from testkit.memory.turns import until

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
GROUP, TOPIC = "g", "t"
PARTITIONS, ROUNDS = 200, 90
"""About 1.1 MB of commits: one segment is closed."""


async def find_coordinator(connection: Connection) -> None:
    while True:
        found = await connection.request(FindCoordinatorRequest(coordinator_keys=[GROUP]))
        if not found.coordinators[0].error_code:
            return


async def commit(connection: Connection, offset: int) -> None:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        name=TOPIC,
        partitions=[
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset + index
            )
            for index in range(PARTITIONS)
        ],
    )
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    reply = await connection.request(request, version=9)
    assert {each.error_code for each in reply.topics[0].partitions} == {ErrorCode.NONE}


async def committed(connection: Connection) -> dict[int, int]:
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    while True:
        request = OffsetFetchRequest(groups=[group], require_stable=False)
        (reply,) = (await connection.request(request, version=9)).groups
        if reply.error_code == ErrorCode.NONE:
            break
    (topic,) = reply.topics
    return {each.partition_index: each.committed_offset for each in topic.partitions}


def offsets_log(node: Node) -> Log:
    assert node.broker is not None
    log = node.broker.logs.get("__consumer_offsets", 0)
    assert log is not None
    return log


def keys_below(log: Log, end: int) -> Counter[bytes]:
    """Return the count of each key in the log below `end`."""
    found: Counter[bytes] = Counter()
    offset = log.log_start_offset
    while offset < end:
        records = list(read_records(log.read(offset, 1 << 20, max_offset=end)))
        found.update(record.key or b"" for record in records if record.offset < end)
        offset = records[-1].offset + 1
    return found


@pytest.mark.slow
async def test_only_the_last_commits_are_left_and_a_restart_finds_them() -> None:
    files = MemoryFiles()
    expected = {index: 1_000 * (ROUNDS - 1) + index for index in range(PARTITIONS)}
    async with running_node(files, SETTINGS) as node:
        connection = await connect(node)
        await create_topic(connection, TOPIC, partitions=PARTITIONS)
        await find_coordinator(connection)
        for number in range(ROUNDS):
            await commit(connection, 1_000 * number)
        log = offsets_log(node)
        closed = log.segments.active.base_offset
        assert closed > 2 * PARTITIONS

        def is_clean() -> bool:
            counted = keys_below(log, closed)
            return len(counted) == PARTITIONS and set(counted.values()) == {1}

        await until(is_clean)
        assert log.log_end_offset == PARTITIONS * ROUNDS
        assert await committed(connection) == expected
        await connection.close()
    async with running_node(files, SETTINGS) as node:
        connection = await connect(node)
        await find_coordinator(connection)
        assert await committed(connection) == expected
        assert offsets_log(node).size_bytes < 300_000
        await connection.close()
