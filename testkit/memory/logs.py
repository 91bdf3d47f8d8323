"""Logs and batches for the storage tests."""

from __future__ import annotations

import random

from protocol.batch.header import iter_batches
from protocol.batch.records import NO_PRODUCER, Producer, Record, build_batch, read_records
from runtime.clock import ManualClock
from storage.files import Files, MemoryFiles
from storage.log.append import AppendInfo
from storage.log.config import LogConfig
from storage.log.log import Log, LogHooks
from storage.log.producers import Origin
from storage.log.timestamps import Search, TimestampOffset, look_into

DIRECTORY = "/data/topic-0"
T0 = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    size: int = 10,
    timestamp: int = T0,
    step_ms: int = 0,
    producer: Producer = NO_PRODUCER,
    base_offset: int = 0,
    epoch: int = -1,
    tag: str = "",
) -> bytes:
    records = [
        Record(
            timestamp=timestamp + at * step_ms, key=b"k", value=f"{tag}{at}".encode().ljust(size)
        )
        for at in range(count)
    ]
    return build_batch(records, base_offset, producer=producer, leader_epoch=epoch)


def make_log(
    files: Files | None = None,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clock: ManualClock | None = None,
    hooks: LogHooks | None = None,
    **config: object,
) -> Log:
    return Log.open(
        files or MemoryFiles(),
        DIRECTORY,
        LogConfig(**config),  # type: ignore[arg-type]
        clock or ManualClock(T0),
        clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        hooks=hooks,
    )


def append(log: Log, data: bytes, epoch: int = 0, origin: Origin = Origin.CLIENT) -> AppendInfo:
    return log.append_as_leader(data, epoch, T0, origin)


def fill(log: Log, batches: int, epoch: int = 0, **options: object) -> None:
    for at in range(batches):
        append(log, batch(tag=f"{at}-", **options), epoch)  # type: ignore[arg-type]


def contents(log: Log, start: int | None = None, end: int | None = None) -> list[tuple[int, bytes]]:
    """Return (offset, value) of every record from `start` to `end`, read as a consumer would."""
    offset = log.local_log_start_offset if start is None else start
    end = log.log_end_offset if end is None else end
    found: list[tuple[int, bytes]] = []
    while offset < end:
        data = log.read(offset, 4096, max_offset=end)
        last = None
        for header, _ in iter_batches(data):
            last = header.last_offset
        if last is None:
            break
        found += [
            (record.offset, record.value or b"")
            for record in read_records(data)
            if record.offset >= offset
        ]
        offset = last + 1
    return found


def at_once(search: Search) -> TimestampOffset | None:
    """Run a search by time to its end."""
    try:
        wanted = next(search)
        while True:
            found = None
            if wanted is not None:
                data = wanted.segment.log.pread(wanted.header.size_bytes, wanted.position)
                found = look_into(data, wanted).found
            wanted = search.send(found)
    except StopIteration as done:
        result: TimestampOffset | None = done.value
        return result


def record_from(log: Log, timestamp_ms: int) -> TimestampOffset | None:
    """Return the first record with this timestamp or a later one."""
    return at_once(log.reader.search_time(timestamp_ms))


def newest_record(log: Log) -> TimestampOffset | None:
    """Return the first record with the highest timestamp."""
    return at_once(log.reader.search_time(None))


def facts(log: Log) -> dict[str, object]:
    """Return the properties that must be equal before and after a restart."""
    return {
        "start": log.log_start_offset,
        "local start": log.local_log_start_offset,
        "end": log.log_end_offset,
        "epochs": log.epochs.entries,
        "segments": [segment.base_offset for segment in log.segments],
        "producers": {
            state.producer_id: (state.epoch, state.last_sequence, state.last_offset)
            for state in log.producers
        },
        "max timestamp": newest_record(log),
        "records": contents(log),
    }


def seeded(seed: int) -> random.Random:
    return random.Random(seed)
