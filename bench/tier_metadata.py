"""Replay of the metadata of very many segments, as at a broker's start; print figures as JSON.

    python -m bench.tier_metadata write FILE
    python -m bench.tier_metadata replay FILE

The file has the content of the partitions of `__remote_log_metadata`: for 100,000 segments of 100
partitions, the records of the beginning and the end of their copies.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.nodes import resident_mb, waited_s
from broker.tiering.topic_reader import REPLAYED_AT_ONCE
from protocol.batch.header import iter_checked
from protocol.batch.records import Record, build_batch, read_batch
from protocol.ids import TopicId
from storage.log.epochs import EpochEntry
from storage.tiered.metadata import RemoteMetadata
from storage.tiered.records import encode_record, metadata_partition
from storage.tiered.states import SegmentState
from storage.tiered.values import RemotePartition, RemoteSegment, SegmentUpdate
from testkit.processes.ending import end_on_sigterm

SEGMENTS = 100_000
PARTITIONS = 100
TOPIC_PARTITIONS = 50
RECORDS_PER_BATCH = 4
"""Batches are small, because a writer waits for its own record."""
RECORDS_PER_SEGMENT = 10_000


def partitions() -> list[RemotePartition]:
    return [RemotePartition(TopicId(bytes([7] * 16)), n, "tiered") for n in range(PARTITIONS)]


def _records() -> Iterator[RemoteSegment | SegmentUpdate]:
    rng = random.Random(15)
    for number in range(SEGMENTS // PARTITIONS):
        for partition in partitions():
            first = number * RECORDS_PER_SEGMENT
            begun = RemoteSegment(
                partition=partition,
                segment_id=rng.randbytes(16),
                start_offset=first,
                end_offset=first + RECORDS_PER_SEGMENT - 1,
                broker_id=1,
                max_timestamp_ms=1_700_000_000_000 + first,
                event_timestamp_ms=1_700_000_000_000 + first,
                epochs=(EpochEntry(number // 100, first),),
                size_bytes=1 << 30,
            )
            yield begun
            yield SegmentUpdate(
                partition=partition,
                segment_id=begun.segment_id,
                broker_id=1,
                event_timestamp_ms=begun.event_timestamp_ms + 1,
                state=SegmentState.COPY_FINISHED,
            )


def write(path: Path) -> None:
    """Write each partition of the topic: its number, a length, its batches."""
    values: dict[int, list[bytes]] = defaultdict(list)
    for record in _records():
        values[metadata_partition(record.partition, TOPIC_PARTITIONS)].append(encode_record(record))
    with open(path, "wb") as file:
        for number, of_one in values.items():
            batches = b"".join(
                build_batch(
                    [Record(0, 0, None, value) for value in of_one[at : at + RECORDS_PER_BATCH]],
                    base_offset=at,
                )
                for at in range(0, len(of_one), RECORDS_PER_BATCH)
            )  # fmt: skip
            file.write(number.to_bytes(4) + len(batches).to_bytes(4) + batches)


def replay(path: Path) -> dict[str, float]:
    """Replay the file; return `s`, `cpu_s`, `waited_s`, `mb`.

    They are the seconds, the CPU seconds, the seconds of waiting for a processor, and the growth of
    memory in MiB.
    """
    metadata = RemoteMetadata(TOPIC_PARTITIONS)
    for partition in partitions():
        metadata.take(partition)
    gc.collect()
    before_mb = resident_mb(os.getpid())
    begin, cpu_begin = time.perf_counter(), time.process_time()
    waited_before_s = waited_s(os.getpid())
    with open(path, "rb") as file:
        while head := file.read(8):
            _replay_one(metadata, int.from_bytes(head[:4]), file.read(int.from_bytes(head[4:])))
    took_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
    had_to_wait_s = waited_s(os.getpid()) - waited_before_s
    more_mb = resident_mb(os.getpid()) - before_mb
    for number, position in metadata.wanted().items():
        metadata.end_known(number, position)
    caches = [metadata.cache(partition) for partition in partitions()]
    finished = sum(len(list(cache.finished())) for cache in caches if cache is not None)
    if finished != SEGMENTS:
        sys.exit(f"{finished} segments, not {SEGMENTS}")
    return {"s": took_s, "cpu_s": cpu_s, "waited_s": had_to_wait_s, "mb": more_mb}


def _replay_one(metadata: RemoteMetadata, number: int, content: bytes) -> None:
    records: list[tuple[int, bytes | None]] = []
    for header, at in iter_checked(content):
        records += ((one.offset, one.value) for one in read_batch(content, at, header))
        if len(records) >= REPLAYED_AT_ONCE:
            metadata.replay(number, records[0][0], records, records[-1][0] + 1)
            records.clear()
    if records:
        metadata.replay(number, records[0][0], records, records[-1][0] + 1)


def main() -> None:
    what, path = sys.argv[1], Path(sys.argv[2])
    if what == "write":
        write(path)
    else:
        print(json.dumps(replay(path)))


if __name__ == "__main__":
    end_on_sigterm()
    main()
