"""The short way of an append, for a batch with a known header, compared with the general one."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch.header import parse_header
from protocol.batch.records import NO_PRODUCER, Producer
from protocol.errors import ApiError
from storage.log.log import Log
from testkit.memory.logs import T0, batch, facts, make_log

producers = st.one_of(
    st.just(None),
    st.tuples(st.sampled_from([1, 2]), st.integers(0, 1), st.integers(-1, 2)),
)
appends = st.tuples(
    producers, st.integers(1, 3), st.integers(0, 120), st.integers(-50, 50), st.booleans()
)


def follow(log: Log, producer: tuple[int, int, int] | None) -> Producer:
    """Return a producer whose sequence has this distance from the next one."""
    if producer is None:
        return NO_PRODUCER
    producer_id, epoch, skipped = producer
    known = [state for state in log.producers if state.producer_id == producer_id]
    following = known[0].last_sequence + 1 if known else 0
    return Producer(producer_id, epoch, max(0, following + (skipped if skipped < 2 else 0)))


def append(log: Log, data: bytes, epoch: int, *, in_place: bool, short: bool) -> Any:
    content = memoryview(bytearray(data)) if in_place else data
    header = parse_header(content) if short else None
    try:
        return log.append_as_leader(content, epoch, T0, header=header)
    except ApiError as error:
        return error.code, error.message


def everything(log: Log) -> dict[str, Any]:
    return {
        **facts(log),
        "bytes": log.read(0, 1 << 20, max_offset=log.log_end_offset),
        "indexes": [
            (segment.offset_index.entries(), segment.time_index.entries())
            for segment in log.segments
        ],
        "snapshot": log.producers.encode_snapshot(),
    }


@given(st.lists(appends, max_size=30))
@settings(max_examples=80, deadline=None)
def test_both_ways_answer_and_store_the_same(steps: list[Any]) -> None:
    config = {"segment_bytes": 700, "index_interval_bytes": 150}
    short, general = make_log(**config), make_log(**config)
    for number, (producer, count, size, later_ms, in_place) in enumerate(steps):
        data = batch(count, size=size, timestamp=T0 + later_ms, producer=follow(general, producer))
        epoch = number // 8
        assert append(short, data, epoch, in_place=in_place, short=True) == append(
            general, data, epoch, in_place=in_place, short=False
        )
    assert everything(short) == everything(general)
