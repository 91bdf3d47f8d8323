"""Batches with invalid records, on a node that does not walk records (the default).

They are stored, since header and CRC are right, as decision 13 accepts. These tests check what must
hold nevertheless: the node reads over them, finds offsets by time, recovers after a crash, and
serves all other clients.
"""

from __future__ import annotations

import asyncio
import gzip

import pytest

from kraftbox.node import Node
from protocol.batch import iter_batches
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.transport.client import Connection
from runtime.log import captured
from storage.files import MemoryFiles
from testkit.memory.node import running_node
from testkit.processes.peer import produce_request
from testkit.records.lying_batches import batch, record, records

T0 = 1_700_000_000_000
GZIP, LZ4, ZSTD = 1, 3, 4

LIES = {
    "garbage": batch(b"\xff" * 40, 3, base_timestamp=T0),
    "nothing": batch(b"", 5, base_timestamp=T0),
    "broken gzip": batch(b"garbage" * 10, 2, attributes=GZIP, base_timestamp=T0),
    "broken lz4": batch(b"garbage" * 10, 2, attributes=LZ4, base_timestamp=T0),
    "broken zstd": batch(b"garbage" * 10, 2, attributes=ZSTD, base_timestamp=T0),
    "fewer than said": batch(records(1), 100, base_timestamp=T0),
    "more than said": batch(records(100), 1, base_timestamp=T0),
    "deltas": batch(record(offset_delta=7) + record(offset_delta=-3), 2, base_timestamp=T0),
    "bomb": batch(gzip.compress(record(bytes(150_000_000))), attributes=GZIP, base_timestamp=T0),
    "time": batch(records(1), 1, base_timestamp=T0, max_timestamp=T0 + 999_999),
}


async def connect(node: Node) -> Connection:
    return await Connection.connect("127.0.0.1", node.bound_port("PLAINTEXT"), "test", 20_000)


async def produce(connection: Connection, data: bytes) -> int:
    for _ in range(200):
        reply = await connection.request(produce_request({("t", 0): data}), version=12)
        (result,) = reply.responses[0].partition_responses
        if result.error_code != 6:
            assert result.error_code == 0, result
            return int(result.base_offset)
        await asyncio.sleep(0.01)
    raise AssertionError("no leader")


async def offset_at(connection: Connection, timestamp: int) -> tuple[int, int]:
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                ],
            )
        ]
    )
    reply = await connection.request(request, version=7)
    (one,) = reply.topics[0].partitions
    assert one.error_code == 0
    return one.offset, one.timestamp


async def read_over(connection: Connection, end: int) -> list[int]:
    """Return the base offsets of all batches, as a consumer finds them."""
    bases: list[int] = []
    offset = 0
    while offset < end:
        request = FetchRequest(
            session_epoch=-1,
            max_bytes=1 << 20,
            topics=[
                FetchRequest.FetchTopic(
                    topic="t",
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=0, fetch_offset=offset, partition_max_bytes=1000
                        )
                    ],
                )
            ],
        )
        reply = await connection.request(request, version=12)
        (one,) = reply.responses[0].partitions
        assert one.error_code == 0
        assert one.records
        for header, _ in iter_batches(bytes(one.records)):
            bases.append(header.base_offset)
            offset = header.last_offset + 1
    return bases


@pytest.mark.parametrize("name", list(LIES))
async def test_b20_invalid_records_do_not_affect_other_clients(name: str) -> None:
    files = MemoryFiles()
    good = batch(records(1), 1, base_timestamp=T0 + 50)
    with captured() as lines:
        async with running_node(files) as node:
            connection = await connect(node)
            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=1, replication_factor=1
            )
            await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
            assert await produce(connection, good) == 0
            lie = await produce(connection, LIES[name])
            last = await produce(connection, good)
            assert await read_over(connection, last + 1) == [0, lie, last]
            for timestamp in (0, T0, T0 + 50, T0 + 1000, -1, -2, -3):
                await offset_at(connection, timestamp)
            assert await offset_at(connection, T0 + 50) == (0, T0 + 50)
            await connection.close()
        files.unlink("/data/.kafka_cleanshutdown")
        async with running_node(files) as node:
            connection = await connect(node)
            assert await produce(connection, good) == last + 1
            assert await read_over(connection, last + 2) == [0, lie, last, last + 1]
            await connection.close()
    assert [line for line in lines if line["log_level"] == "error"] == []
