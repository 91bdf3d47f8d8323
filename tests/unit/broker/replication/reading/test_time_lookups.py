"""ListOffsets by time: heavy lookups run in a worker or in steps, by a counter of work."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from broker.apis.list_offsets import LOOKED_UP_AT_ONCE_MAX, Special
from broker.replication.reading.walk_limits import RECORDS_MAX
from protocol.batch.records import Record, build_batch
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest
from storage.files import MemoryFiles
from testkit.memory.broker import OTHER, Harness, batch
from testkit.memory.turns import until

T0 = 1_700_000_000_000
BIG = 2 * RECORDS_MAX


class GatedFiles(MemoryFiles):
    """A file system whose work in a worker waits until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.at_work = self.at_work_most = 0
        self.broken: list[OSError] = []

    async def pread(self, *args: Any) -> bytes:
        self.at_work += 1
        self.at_work_most = max(self.at_work, self.at_work_most)
        await self.gate.wait()
        self.at_work -= 1
        if self.broken:
            raise self.broken.pop()
        return await super().pread(*args)


def filled(codec: Codec = Codec.LZ4, partitions: int = 3) -> Harness:
    """Return partitions with a batch each, whose record at offset n has the time T0 + n."""
    h = Harness(files=GatedFiles())
    h.create_topic(partitions=partitions)
    big = build_batch([Record(n, T0 + n, b"k", b"v") for n in range(BIG)], compression=codec)
    for index in range(partitions):
        h.produce(big, index=index, acks=1)
    return h


def ask(h: Harness, timestamp: int, partitions: int = 3) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic(
        name="t",
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=n, timestamp=timestamp)
            for n in range(partitions)
        ],
    )
    return h.call(ListOffsetsRequest(topics=[topic]))


def results(reply: Any) -> list[tuple[int, int, int]]:
    return [(p.error_code, p.timestamp, p.offset) for p in reply.topics[0].partitions]


def gate(h: Harness) -> GatedFiles:
    assert isinstance(h.files, GatedFiles)
    return h.files


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
async def test_time_lookup_decodes_large_batches_in_a_worker_one_at_a_time(codec: Codec) -> None:
    h = filled(codec)
    replies = [ask(h, T0 + BIG - 1), ask(h, T0 + 3)]
    await asyncio.sleep(0)
    assert not replies[0].done() and not replies[1].done()
    # Other requests are answered in the meantime.
    assert results(ask(h, Special.LATEST)) == [(0, -1, BIG)] * 3
    gate(h).gate.set()
    assert results(await replies[0]) == [(0, T0 + BIG - 1, BIG - 1)] * 3
    assert results(await replies[1]) == [(0, T0 + 3, 3)] * 3
    lookups = h.context.time_lookups
    assert (lookups.batches_in_worker, gate(h).at_work_most, lookups.records_walked) == (6, 1, 0)


async def test_the_highest_timestamp_of_a_big_batch() -> None:
    h = filled()
    gate(h).gate.set()
    assert results(await ask(h, Special.MAX_TIMESTAMP)) == [(0, T0 + BIG - 1, BIG - 1)] * 3


async def test_a_small_batch_is_walked_on_the_loop_up_to_the_record() -> None:
    h = Harness(files=GatedFiles())
    h.create_topic()
    records = [Record(n, T0 + n, b"k", b"v") for n in range(RECORDS_MAX)]
    h.produce(build_batch(records), acks=1)
    assert results(ask(h, T0 + 7, 1)) == [(0, T0 + 7, 7)]
    assert h.context.time_lookups.records_walked == 8


async def test_time_lookup_of_many_partitions_runs_in_portions() -> None:
    count = 5 * LOOKED_UP_AT_ONCE_MAX
    h = Harness()
    h.create_topic(partitions=count)
    for index in range(count):
        h.produce(batch(b"x", timestamp=T0), index=index, acks=1)
    assert len(results(ask(h, T0, LOOKED_UP_AT_ONCE_MAX))) == LOOKED_UP_AT_ONCE_MAX
    before = h.context.time_lookups.records_walked
    reply = ask(h, T0, count)
    assert h.context.time_lookups.records_walked == before + LOOKED_UP_AT_ONCE_MAX
    turns = 0
    while not reply.done():
        await asyncio.sleep(0)
        turns += 1
        assert h.context.time_lookups.records_walked <= before + LOOKED_UP_AT_ONCE_MAX + turns
    assert results(await reply) == [(0, T0, 0)] * count
    assert turns >= count - LOOKED_UP_AT_ONCE_MAX


async def test_time_lookup_is_refused_when_leadership_ends_during_the_search() -> None:
    h = filled(partitions=1)
    h.change(replicas=[1, OTHER], isr=[1, OTHER])
    reply = ask(h, T0, 1)
    await asyncio.sleep(0)
    h.change(leader=OTHER)
    gate(h).gate.set()
    assert results(await reply) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)]


async def test_a_disk_that_cannot_be_read() -> None:
    h = filled(partitions=2)
    reply = ask(h, T0, 2)
    gate(h).broken = [OSError(5, "input/output error")] * 2
    gate(h).gate.set()
    assert results(await reply) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)] * 2


async def test_time_lookup_restarts_when_segments_are_removed_during_the_search() -> None:
    h = filled(partitions=1)
    reply = ask(h, T0 + 5, 1)
    await asyncio.sleep(0)
    log = h.partition().log
    gate(h).broken = [OSError(9, "the file is closed")]
    log.segments.generation += 1
    gate(h).gate.set()
    assert results(await reply) == [(0, T0 + 5, 5)]
    assert h.context.time_lookups.batches_in_worker == 2


@pytest.mark.parametrize("in_worker", [False, True])
async def test_time_lookup_of_a_record_above_the_limit_returns_invalid_record(
    in_worker: bool,
) -> None:
    """Kafka 4.4: `max.decompressed.message.bytes` of the topic limits lookups of one partition, and
    other partitions are answered."""
    h = Harness(files=GatedFiles())
    gate(h).gate.set()
    h.create_topic(partitions=2)
    value = random.Random(1).randbytes(50_000) if in_worker else bytes(50_000)
    records = [Record(0, T0, b"k", b"v"), Record(1, T0 + 1, b"k", value)]
    h.produce(build_batch(records, compression=Codec.ZSTD), acks=1)
    h.produce(build_batch([Record(0, T0 + 1, b"k", b"v")]), index=1, acks=1)

    async def found(time_ms: int) -> list[tuple[int, int, int]]:
        reply = ask(h, time_ms, 2)
        return results(await reply if isinstance(reply, asyncio.Future) else reply)

    assert await found(T0 + 1) == [(0, T0 + 1, 1), (0, T0 + 1, 0)]
    h.partition().log.configure(
        replace(h.partition().log.config, max_decompressed_message_bytes=40_000)
    )
    assert await found(T0) == [(0, T0, 0), (0, T0 + 1, 0)]
    for time_ms in (T0 + 1, Special.MAX_TIMESTAMP):
        assert await found(time_ms) == [(ErrorCode.INVALID_RECORD, -1, -1), (0, T0 + 1, 0)]
    assert (h.context.time_lookups.batches_in_worker > 0) is in_worker


async def test_time_lookup_restarts_after_a_refused_record_of_a_removed_segment() -> None:
    h = filled(partitions=1)
    log = h.partition().log
    reply = ask(h, T0 + 5, 1)
    await asyncio.sleep(0)
    config = log.config
    log.configure(replace(config, max_decompressed_message_bytes=1))
    log.segments.generation += 1
    # The first search goes on, the second waits at the closed gate.
    gate(h).gate.set()
    gate(h).gate.clear()
    await until(lambda: reply.done() or h.context.time_lookups.batches_in_worker == 2)
    log.configure(config)
    gate(h).gate.set()
    assert results(await reply) == [(0, T0 + 5, 5)]
