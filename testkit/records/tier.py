"""Metadata of tiered storage for tests: random values, and segments from few arguments."""

from __future__ import annotations

import random
from dataclasses import fields

from protocol.ids import TopicId, random_uuid
from storage.log.epochs import EpochEntry
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentSnapshot,
    SegmentUpdate,
    TierRecord,
)

TOPIC_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
PARTITION = RemotePartition(TopicId(bytes(range(16))), 0, "t")


def segment_id(number: int) -> bytes:
    """Return an id that is easy to distinguish."""
    return number.to_bytes(16, "big")


def segment(
    number: int,
    start_offset: int,
    end_offset: int,
    epochs: dict[int, int] | None = None,
    *,
    state: SegmentState = SegmentState.COPY_STARTED,
    size_bytes: int = 100,
    max_timestamp_ms: int = 1000,
    broker_id: int = 1,
    partition: RemotePartition = PARTITION,
) -> RemoteSegment:
    """Return a segment of `PARTITION`; `epochs` are {epoch: start offset}, else epoch 0."""
    return RemoteSegment(
        partition=partition,
        segment_id=segment_id(number),
        start_offset=start_offset,
        end_offset=end_offset,
        broker_id=broker_id,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=0,
        epochs=tuple(EpochEntry(*pair) for pair in sorted((epochs or {0: start_offset}).items())),
        size_bytes=size_bytes,
        state=state,
    )


def update(
    number: int, state: SegmentState, *, partition: RemotePartition = PARTITION, broker_id: int = 1
) -> SegmentUpdate:
    """Return a change of the segment of that number."""
    return SegmentUpdate(
        partition=partition,
        segment_id=segment_id(number),
        broker_id=broker_id,
        event_timestamp_ms=0,
        state=state,
    )


def random_record(rng: random.Random) -> TierRecord:
    """Return any record, with values from all over their ranges."""
    partition = RemotePartition(
        TopicId(random_uuid(rng)),
        rng.choice((0, 1, rng.randrange(1 << 10), (1 << 31) - 1)),
        "".join(rng.choices(TOPIC_CHARS, k=rng.randint(1, 30))),
    )
    kind = rng.randrange(4)
    if kind == 2:
        deleted = rng.choice(list(PartitionDeleteState))
        return PartitionDeletion(
            partition=partition,
            broker_id=_int32(rng),
            event_timestamp_ms=_int64(rng),
            state=deleted,
        )
    custom = rng.choice((None, b"", rng.randbytes(rng.randint(1, 200))))
    state = rng.choice(list(SegmentState))
    if kind == 1:
        return SegmentUpdate(
            partition=partition,
            segment_id=random_uuid(rng),
            broker_id=_int32(rng),
            event_timestamp_ms=_int64(rng),
            state=state,
            custom_metadata=custom,
        )
    start = rng.choice((0, rng.randrange(1 << 40)))
    end = start + rng.randrange(1 << 31)
    numbers = sorted(rng.sample(range(1 << 20), rng.choice((1, 2, 5))))
    starts = sorted(rng.randint(start, end) for _ in numbers)
    snapshot = SegmentSnapshot(
        segment_id=random_uuid(rng),
        start_offset=start,
        end_offset=end,
        broker_id=_int32(rng),
        max_timestamp_ms=_int64(rng),
        event_timestamp_ms=_int64(rng),
        epochs=tuple(map(EpochEntry, numbers, starts)),
        size_bytes=rng.randrange(1 << 31),
        state=state,
        custom_metadata=custom,
        txn_index_empty=rng.random() < 0.5,
    )
    if kind == 3:
        return snapshot
    values = {one.name: getattr(snapshot, one.name) for one in fields(snapshot)}
    return RemoteSegment(partition=partition, **values)


def _int32(rng: random.Random) -> int:
    return rng.choice((0, -1, 1, rng.randrange(-(1 << 31), 1 << 31)))


def _int64(rng: random.Random) -> int:
    return rng.choice((-1, 0, rng.randrange(1 << 42), rng.randrange(-(1 << 63), 1 << 63)))
