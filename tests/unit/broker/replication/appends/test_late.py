"""Large batches that must be walked: validated off the loop, appended in order."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from broker.replication.appends import late as late_appends
from broker.replication.partition.followers import follower_fetched
from broker.replication.reading.walk_limits import RECORDS_MAX
from broker.replication.replicas import appender
from protocol.batch.header import BatchHeader, iter_batches
from protocol.batch.records import Producer, Record, build_batch, varint
from protocol.batch.validate import ValidBatch
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from runtime.errors import InvariantViolated
from runtime.log import captured
from testkit.memory.broker import (
    NODE,
    OTHER,
    Harness,
    Peer,
    batch,
    produce_request,
    settle,
)
from testkit.records.batches import with_payload

COUNT = RECORDS_MAX + 1


def heavy(*, key: bytes | None = b"k", producer: Producer | None = None) -> bytes:
    records = [Record(n, 1_700_000_000_000, key, b"v") for n in range(COUNT)]
    if producer is None:
        return build_batch(records)
    return build_batch(records, producer=producer)


def compacted(*, stamped: bool = False, **fields: Any) -> Harness:
    h = Harness()
    configs = {"cleanup.policy": "compact"}
    if stamped:
        configs["message.timestamp.type"] = "LogAppendTime"
    h.create_topic(configs=configs, **fields)
    return h


def result_of(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


async def test_a_heavy_batch_is_appended_late() -> None:
    h = compacted()
    waiting = h.produce(heavy())
    assert h.partition().log.log_end_offset == 0
    result = result_of(await waiting)
    assert (result.error_code, result.base_offset) == (0, 0)
    assert h.partition().log.log_end_offset == COUNT
    await settle()
    # No batch precedes it any more: a small one is appended at once.
    assert h.produce(batch(b"a", key=b"k")).base_offset == COUNT


async def test_a_heavy_batch_on_a_plain_topic_is_not_walked_and_not_late() -> None:
    h = Harness()
    h.create_topic()
    assert h.produce(heavy(key=None)).error_code == 0


async def test_batches_after_a_heavy_batch_are_appended_in_request_order() -> None:
    h = compacted()
    pending = [
        h.produce(heavy(producer=Producer(5, 0, 0))),
        h.produce(batch(b"a", key=b"k", producer=Producer(5, 0, COUNT))),
        h.produce(batch(b"b", key=b"k", producer=Producer(5, 0, COUNT + 1))),
    ]
    results = [result_of(await each) for each in pending]
    assert [r.error_code for r in results] == [0, 0, 0]
    assert [r.base_offset for r in results] == [0, COUNT, COUNT + 1]
    read = h.fetch(0)
    assert [header.base_offset for header, _ in iter_batches(bytes(read.records))] == [
        0,
        COUNT,
        COUNT + 1,
    ]


async def test_other_partitions_do_not_wait() -> None:
    h = compacted(partitions=2)
    waiting = h.produce(heavy())
    assert h.produce(batch(b"a", key=b"k"), index=1).base_offset == 0
    await waiting


async def test_a_refused_heavy_batch_lets_the_next_one_pass() -> None:
    h = compacted()
    refused = h.produce(heavy(key=None))
    passed = h.produce(batch(b"a", key=b"k"))
    result = result_of(await refused)
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert result.base_offset == -1
    assert result.record_errors[0].batch_index == 0
    assert result_of(await passed).base_offset == 0
    assert h.partition().counters.failed_produces == 1


async def test_leadership_is_checked_again_when_it_is_appended() -> None:
    h = compacted(replicas=[NODE, OTHER])
    waiting = h.produce(heavy())
    h.change(leader=OTHER)
    result = result_of(await waiting)
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader.leader_id == OTHER
    assert h.partition().log.log_end_offset == 0


async def test_acks_all_waits_for_the_isr_after_the_late_append() -> None:
    h = compacted(replicas=[NODE, OTHER])
    waiting = h.produce(heavy())
    while h.partition().log.log_end_offset == 0:
        await settle()
    assert not waiting.done()
    partition = h.partition()
    effects = follower_fetched(
        partition, OTHER, offset=COUNT, log_start=0, broker_epoch=1, now_ms=0
    )
    h.replicas.carry_out(partition, effects)
    assert result_of(await waiting).error_code == 0


async def test_acks_zero_closes_when_a_late_append_fails() -> None:
    h = compacted()
    peer = Peer(3)
    assert await h.produce(heavy(key=None), acks=0, peer=peer) is None
    assert peer.closed is not None
    assert "INVALID_RECORD" in peer.closed
    good = Peer(4)
    assert await h.produce(heavy(), acks=0, peer=good) is None
    assert h.partition().log.log_end_offset == COUNT
    assert good.closed is None


async def test_a_connection_that_goes_before_the_append_leaves_no_wait_behind() -> None:
    """Its wait for the ISR would begin without a client, and last for its timeout of 24 days."""
    h = compacted(replicas=[NODE, OTHER])
    peer = Peer(9)
    waiting = h.produce(heavy(), timeout_ms=2**31 - 1, peer=peer)
    peer.close("gone")
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert h.partition().log.log_end_offset == COUNT, "it was accepted"
    assert (len(h.waits.purgatory), h.waits.purgatory.next_deadline_ms()) == (0, None)
    await settle()
    assert len(h.supervisor) == 0


async def test_a_connection_that_goes_while_a_late_append_waits_ends_its_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = compacted(replicas=[NODE, OTHER])
    peer = Peer(9)
    hold, held = h.waits.hold, asyncio.Event()

    def hold_and_tell(*wait: Any) -> None:
        hold(*wait)
        held.set()

    monkeypatch.setattr(h.waits, "hold", hold_and_tell)
    waiting = h.produce(heavy(), timeout_ms=2**31 - 1, peer=peer)
    await held.wait()
    assert len(h.waits.purgatory) == 1
    peer.close("gone")
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert len(h.waits.purgatory) == 0
    await settle()
    assert len(h.supervisor) == 0


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_copies_that_wait_are_counted_as_request_memory(acks: int) -> None:
    h = compacted()
    peer = Peer(3)
    waiting = [h.produce(heavy(), acks=acks, peer=peer) for _ in range(3)]
    assert peer.kept_bytes == h.context.late_appends.waiting_bytes == 3 * len(heavy())
    for each in waiting:
        await each
    await settle()
    assert peer.kept_bytes == h.context.late_appends.waiting_bytes == 0


async def test_late_appends_over_the_byte_limit_are_refused_across_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = compacted()
    monkeypatch.setattr(late_appends, "LATE_BYTES_MAX", 2 * len(heavy()))
    waiting = [h.produce(heavy(), peer=Peer(number)) for number in range(2)]
    assert h.produce(heavy(), peer=Peer(3)).error_code == ErrorCode.REQUEST_TIMED_OUT
    for each in waiting:
        assert result_of(await each).error_code == ErrorCode.NONE
    await settle()
    assert result_of(await h.produce(heavy(), peer=Peer(4))).error_code == ErrorCode.NONE


def beyond_int64() -> bytes:
    """Return a batch whose timestamps are all beyond the largest int64."""
    body = b"\0" + varint(1)
    records = [body + varint(n) + varint(1) + b"k" + varint(-1) + b"\0" for n in range(COUNT)]
    payload = b"".join(varint(len(record)) + record for record in records)
    last = 2**63 - 1
    return with_payload(payload, COUNT, base_timestamp=last, max_timestamp=last)


async def test_a_heavy_batch_whose_timestamps_leave_int64_is_refused() -> None:
    h = compacted(stamped=True)
    refused = h.produce(beyond_int64())
    passed = h.produce(batch(b"a", key=b"k"))
    assert result_of(await refused).error_code == ErrorCode.INVALID_TIMESTAMP
    assert result_of(await passed).base_offset == 0
    assert h.failures == [] and h.supervisor.survived == {}


@pytest.mark.parametrize("error", [struct.error("int too large"), KeyError(3), MemoryError()])
async def test_unforeseen_error_in_a_worker_refuses_only_its_batch(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    h = compacted()

    def fail(records: bytes, header: BatchHeader, *_: object) -> ValidBatch:
        if header.record_count == COUNT:
            raise error
        return ValidBatch(header, records, -1)

    monkeypatch.setattr(late_appends, "finish", fail)
    with captured() as lines:
        refused = h.produce(heavy())
        passed = h.produce(batch(b"a", key=b"k"))
        result = result_of(await refused)
    assert (result.error_code, result.base_offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert result_of(await passed).base_offset == 0
    assert h.failures == []
    assert h.supervisor.survived == {"produced batch": 1}
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["head"] == heavy()[:64].hex() and line["topic"] == "t"
    await settle()
    # And the partition has a free worker for the next large one.
    monkeypatch.undo()
    assert result_of(await h.produce(heavy())).base_offset == 1


async def test_a_broken_invariant_in_a_late_append_stops_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = compacted()

    def fail(*_: object) -> ValidBatch:
        raise InvariantViolated("offsets went back")

    monkeypatch.setattr(late_appends, "finish", fail)
    await h.produce(heavy())
    assert h.failures == ["produced batch"]


@pytest.mark.parametrize("partitions", [1, 2])
async def test_unforeseen_error_on_the_loop_is_answered_as_unknown_server_error(
    monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    h = compacted(partitions=2)

    def fail(*_: object) -> ValidBatch:
        raise struct.error("int too large")

    monkeypatch.setattr(appender, "finish", fail)
    request = produce_request(batch(b"a", key=b"k"))
    (data,) = request.topic_data[0].partition_data
    if partitions == 2:
        again = ProduceRequest.PartitionProduceData(index=1, records=data.records)
        request.topic_data[0].partition_data.append(again)
    results = h.call(request, 12).responses[0].partition_responses
    assert {result.error_code for result in results} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert h.failures == []
