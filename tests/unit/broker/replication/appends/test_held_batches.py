"""Batches that wait before their append: for an image, predecessors, a walk (KIP-951, P24)."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from broker.replication.appends import held_batches, lines
from broker.replication.appends.held_batches import (
    DEPOSED_MS,
    HOLD_MAX_MS,
    PREDECESSORS_MS,
    YOUNG_MS,
)
from broker.replication.partition.followers import follower_fetched
from broker.replication.reading.walk_limits import RECORDS_MAX
from broker.replication.replicas import appender
from protocol.batch.header import BatchHeader, iter_batches, parse_header
from protocol.batch.records import Producer, Record, build_batch, varint
from protocol.batch.validate import ValidBatch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import ProduceRequest
from runtime.errors import InvariantViolated
from runtime.log import captured
from runtime.marks import counted
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

THIRD = 3
COUNT = RECORDS_MAX + 1


def follower(**fields: Any) -> Harness:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], leader=OTHER, **fields)
    return h


def result_of(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


async def test_a_batch_waits_for_the_image_that_makes_this_broker_the_leader() -> None:
    h = follower()
    waiting = h.produce(batch(b"a"), acks=1)
    await settle()
    assert not waiting.done()
    with counted() as marks:
        h.change(leader=NODE)
    result = result_of(await waiting)
    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)
    assert h.partition().log.log_end_offset == 1
    assert marks["replication.early-append"] == 1


async def test_another_image_lets_it_wait_on() -> None:
    h = follower()
    waiting = h.produce(batch(b"a"), acks=1)
    h.create_topic("other", number=2)
    await settle()
    assert not waiting.done()
    h.change(leader=NODE)
    assert result_of(await waiting).error_code == ErrorCode.NONE


async def test_early_append_after_hold_time_is_refused_with_current_leader() -> None:
    h = follower()
    waiting = h.produce(batch(b"a"))
    h.clock.advance(HOLD_MAX_MS)
    result = result_of(await waiting)
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader.leader_id == OTHER
    assert h.partition().counters.failed_produces == 1
    assert h.context.held_batches.held_bytes == 0


async def test_early_append_on_recently_deposed_leader_is_refused_at_once() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    assert h.produce(batch(b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    h.clock.advance(DEPOSED_MS + 1)
    waiting = h.produce(batch(b"a"), acks=1)
    h.change(leader=NODE)
    assert result_of(await waiting).error_code == ErrorCode.NONE


async def test_early_append_on_leader_deposed_two_changes_ago_is_held() -> None:
    """Leadership has come back: the client knows of the last change already."""
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER, THIRD])
    h.change(leader=OTHER)
    h.change(leader=THIRD)
    waiting = h.produce(batch(b"a"), acks=1)
    assert isinstance(waiting, asyncio.Future), "refused at once"
    h.change(leader=NODE)
    assert result_of(await waiting).error_code == ErrorCode.NONE


async def test_another_isr_does_not_make_it_wait() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER, THIRD])
    h.change(leader=OTHER)
    h.change(isr=[NODE, OTHER])
    assert h.produce(batch(b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_early_append_without_replica_is_refused_at_once() -> None:
    h = Harness()
    h.create_topic(replicas=[OTHER], leader=OTHER)
    assert h.produce(batch(b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_batches_of_a_producer_stay_in_order() -> None:
    h = follower()
    waiting = [h.produce(batch(b"v", producer=Producer(5, 0, at)), acks=1) for at in range(3)]
    h.change(leader=NODE)
    results = [result_of(await one) for one in waiting]
    assert [(r.error_code, r.base_offset) for r in results] == [(0, 0), (0, 1), (0, 2)]


async def test_a_heavy_batch_is_judged_off_the_loop_when_it_has_waited() -> None:
    h = follower(configs={"cleanup.policy": "compact"})
    heavy = build_batch([Record(n, 1_700_000_000_000, b"k", b"v") for n in range(RECORDS_MAX + 1)])
    first, second = h.produce(heavy, acks=1), h.produce(batch(b"a", key=b"k"), acks=1)
    h.change(leader=NODE)
    assert h.partition().log.log_end_offset == 0
    assert result_of(await first).base_offset == 0
    assert result_of(await second).base_offset == RECORDS_MAX + 1


async def test_the_buffer_may_change_while_it_waits_and_is_counted() -> None:
    h, peer = follower(), Peer()
    data = bytearray(batch(b"a"))
    waiting = h.produce(memoryview(data), acks=1, peer=peer)
    assert peer.kept_bytes == h.context.held_batches.held_bytes == len(data)
    data[:] = bytes(len(data))
    h.change(leader=NODE)
    assert result_of(await waiting).error_code == ErrorCode.NONE
    await settle()
    assert peer.kept_bytes == h.context.held_batches.held_bytes == 0


async def test_no_more_waits_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    h = follower()
    monkeypatch.setattr(lines, "HELD_BYTES_MAX", len(batch(b"a")))
    waiting = h.produce(batch(b"a"), acks=1)
    assert h.produce(batch(b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    h.change(leader=NODE)
    assert result_of(await waiting).error_code == ErrorCode.NONE


async def test_early_append_is_refused_when_its_topic_is_deleted() -> None:
    h = follower()
    waiting = h.produce(batch(b"a"))
    h.delete_topic()
    assert result_of(await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_early_append_is_refused_when_the_broker_stops() -> None:
    h = follower()
    waiting = h.produce(batch(b"a"))
    h.context.held_batches.close()
    assert result_of(await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def numbered(sequence: int) -> bytes:
    return batch(b"v", producer=Producer(5, 0, sequence))


def sent(h: Harness, sequence: int) -> Any:
    """Produce a batch. Returns: the result, or a future of the response."""
    return h.produce(numbered(sequence), acks=1)


def young_leader(*, known: int = 1, **fields: Any) -> Harness:
    """Return a leader elected a moment ago that knows `known` earlier batches of the producer."""
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], **fields)
    for sequence in range(known):
        assert sent(h, sequence).error_code == ErrorCode.NONE
    h.change(leader=OTHER)
    h.change(leader=NODE)
    return h


async def test_a_batch_waits_at_a_new_leader_for_those_before_it() -> None:
    """The Java client sends 1 and 5 while the old leader has yet to refuse 2 to 4."""
    h = young_leader()
    assert sent(h, 1).base_offset == 1
    with counted() as marks:
        ahead = [sent(h, sequence) for sequence in (5, 6)]
    assert marks["replication.append-ahead"] == 2
    results = [sent(h, sequence) for sequence in (2, 3, 4)]
    results += [result_of(await one) for one in ahead]
    assert [(r.error_code, r.base_offset) for r in results] == [(0, at) for at in range(2, 7)]
    assert h.context.held_batches.held_bytes == 0
    assert not h.context.held_batches.waiting


async def test_held_batches_are_appended_in_sequence_order_after_the_missing_one() -> None:
    h = young_leader()
    ahead = [sent(h, sequence) for sequence in (4, 3, 2)]
    assert sent(h, 1).base_offset == 1
    assert [result_of(await one).base_offset for one in ahead] == [4, 3, 2]


async def test_a_batch_that_came_before_the_image_waits_on_for_those_before_it() -> None:
    h = young_leader()
    h.change(leader=OTHER)
    h.clock.advance(DEPOSED_MS + 1)
    ahead = sent(h, 2)
    h.change(leader=NODE)
    await settle()
    assert not ahead.done()
    assert sent(h, 1).base_offset == 1
    assert result_of(await ahead).base_offset == 2


async def test_batches_that_arrive_before_the_image_in_any_order_are_appended_with_it() -> None:
    h = young_leader()
    h.change(leader=OTHER)
    h.clock.advance(DEPOSED_MS + 1)
    waiting = [sent(h, sequence) for sequence in (3, 2, 1)]
    h.change(leader=NODE)
    assert [result_of(await one).base_offset for one in waiting] == [3, 2, 1]


async def test_held_batch_is_refused_when_its_predecessor_does_not_arrive() -> None:
    h = young_leader()
    ahead = sent(h, 2)
    assert h.produce(batch(b"of another producer"), acks=1).base_offset == 1
    h.clock.advance(PREDECESSORS_MS)
    result = result_of(await ahead)
    assert result.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert h.partition().counters.failed_produces == 1
    assert sent(h, 1).base_offset == 2


@pytest.mark.parametrize("why", ["it has led for long", "nobody has led before", "no room"])
async def test_out_of_order_batch_that_may_not_be_held_is_refused_at_once(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "nobody has led before":
        h = Harness()
        h.create_topic(replicas=[NODE, OTHER])
        sent(h, 0)
    else:
        h = young_leader()
    if why == "it has led for long":
        h.clock.advance(YOUNG_MS + 1)
    if why == "no room":
        monkeypatch.setattr(lines, "HELD_MAX", 1)
        assert isinstance(sent(h, 2), asyncio.Future)
    refused = sent(h, 3)
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [2**31 - 1, 3])
async def test_a_sequence_that_is_behind_is_not_waited_for(sequence: int) -> None:
    """The largest sequence precedes 0: such a batch is a repeated one, not an early one."""
    h = young_leader(known=5)
    assert sent(h, sequence).error_code != ErrorCode.UNKNOWN_SERVER_ERROR
    assert not h.context.held_batches.waiting


async def test_a_leader_that_is_deposed_while_a_batch_waits_refuses_it() -> None:
    h = young_leader()
    ahead = sent(h, 2)
    h.change(leader=OTHER)
    h.clock.advance(PREDECESSORS_MS)
    assert result_of(await ahead).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_h3_early_append_of_a_leader_deposed_before_its_outcome_is_refused() -> None:
    """H3: a leader that is deposed before it learns of an append's outcome does not acknowledge it.

    The images in which this broker leads, and then does not, came in one event-loop iteration. The
    batch was truncated, and the broker led again. When others had the next batch at that offset,
    the first one was acknowledged, and was in no log (seed 5131).
    """
    h = follower()
    waiting = h.produce(batch(b"lost"), acks=-1)
    h.change(leader=NODE)
    assert h.partition().log.log_end_offset == 1
    h.change(leader=OTHER)
    await settle()
    assert waiting.done()
    result = result_of(waiting.result())
    assert (result.error_code, result.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


class Timers:
    """The loop's `call_later` on a harness's clock: `advance` runs due timers."""

    def __init__(self, h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.h = h
        self.handles: list[Handle] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self.call_later)

    def call_later(self, delay_s: float, fn: Any, *args: Any) -> Any:
        handle = Handle(self.h.clock.monotonic_ms() + delay_s * 1000.0, fn, args)
        self.handles.append(handle)
        return handle

    @property
    def due_ms(self) -> list[float]:
        """Return the times until all armed timers are due."""
        now_ms = self.h.clock.monotonic_ms()
        return [round(one.when_ms - now_ms, 3) for one in self.handles if not one.is_over]

    async def advance(self, by_ms: float) -> None:
        self.h.clock.advance(by_ms)
        for one in self.handles:
            if not one.is_over and one.when_ms <= self.h.clock.monotonic_ms() + 1e-6:
                one.is_over = True
                one.fn(*one.args)
        await settle()


class Handle:
    def __init__(self, when_ms: float, fn: Any, args: tuple[Any, ...]) -> None:
        self.when_ms, self.fn, self.args, self.is_over = when_ms, fn, args, False

    def cancel(self) -> None:
        self.is_over = True


async def test_held_batches_end_each_at_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One timer serves batches with different waits, due in any order.

    One batch came later with a shorter wait, and one came last with the longest.
    """
    h = young_leader()
    h.create_topic("followed", number=2, replicas=[NODE, OTHER], leader=OTHER)
    timers = Timers(h, monkeypatch)
    followed = h.produce(batch(b"a"), acks=1, topic="followed")
    await timers.advance(20)
    ahead = sent(h, 2)
    assert timers.due_ms == [PREDECESSORS_MS]
    await timers.advance(PREDECESSORS_MS - 10)
    last = h.produce(batch(b"b"), acks=1, topic="followed")
    assert timers.due_ms == [10]
    await timers.advance(9)
    assert not ahead.done()
    await timers.advance(1)
    assert ahead.done() and not followed.done() and not last.done()
    assert result_of(await ahead).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert timers.due_ms == [HOLD_MAX_MS - 20 - PREDECESSORS_MS]
    await timers.advance(timers.due_ms[0])
    assert followed.done() and not last.done()
    assert timers.due_ms == [20 + PREDECESSORS_MS - 10]
    await timers.advance(timers.due_ms[0])
    assert result_of(await last).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert timers.due_ms == [] and not h.context.held_batches.held_bytes


async def test_held_batches_arm_no_timer_once_the_image_has_made_this_broker_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = follower()
    timers = Timers(h, monkeypatch)
    waiting = [h.produce(batch(b"a"), acks=1) for _ in range(3)]
    assert timers.due_ms == [HOLD_MAX_MS]
    h.change(leader=NODE)
    assert [result_of(await one).base_offset for one in waiting] == [0, 1, 2]
    assert timers.due_ms == []


async def test_early_batch_of_a_leader_is_not_expected_by_its_image() -> None:
    """Only a follower waits for the image that makes it leader.

    A leader's own refusal, for example for too few in-sync replicas, is sent at once.
    """
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    assert not h.context.held_batches.expects_image(h.partition(), 10)
    h.change(leader=OTHER)
    h.clock.advance(DEPOSED_MS + 1)
    assert h.context.held_batches.expects_image(h.partition(), 10)


# Record walks ----------------------------------------------------------------------


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
    assert peer.kept_bytes == h.context.held_batches.held_bytes == 3 * len(heavy())
    for each in waiting:
        await each
    await settle()
    assert peer.kept_bytes == h.context.held_batches.held_bytes == 0


async def test_late_appends_over_the_byte_limit_are_refused_across_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = compacted()
    monkeypatch.setattr(lines, "HELD_BYTES_MAX", 2 * len(heavy()))
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

    monkeypatch.setattr(held_batches, "finish", fail)
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

    monkeypatch.setattr(held_batches, "finish", fail)
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


# All reasons -------------------------------------------------------------------------------------


async def test_producer_in_a_record_walk_delays_no_other_in_its_partition() -> None:
    """Order is kept per partition and producer id."""
    h = compacted()
    walking = h.produce(heavy(producer=Producer(5, 0, 0)), acks=1)
    behind = h.produce(batch(b"b", key=b"k", producer=Producer(5, 0, COUNT)), acks=1)
    assert h.produce(batch(b"a", key=b"k", producer=Producer(6, 0, 0)), acks=1).base_offset == 0
    assert h.produce(batch(b"a", key=b"k"), acks=1).base_offset == 1
    assert result_of(await walking).base_offset == 2
    assert result_of(await behind).base_offset == 2 + COUNT


def keyed(sequence: int) -> bytes:
    return batch(b"v", key=b"k", producer=Producer(5, 0, sequence))


def young_compacted() -> Harness:
    """Return a new leader of a compacted topic that knows sequence 0 of the producer."""
    h = compacted(replicas=[NODE, OTHER])
    assert h.produce(keyed(0), acks=1).error_code == ErrorCode.NONE
    h.change(leader=OTHER)
    h.change(leader=NODE)
    return h


async def test_walked_predecessor_releases_the_batch_that_waits_for_it() -> None:
    h = young_compacted()
    ahead = h.produce(keyed(1 + COUNT), acks=1)
    walking = h.produce(heavy(producer=Producer(5, 0, 1)), acks=1)
    assert result_of(await walking).base_offset == 1
    await settle()
    assert ahead.done(), "it needs no timer"
    assert result_of(ahead.result()).base_offset == 1 + COUNT


async def test_walked_batch_waits_for_its_predecessors_as_one_copy() -> None:
    h = young_compacted()
    data = heavy(producer=Producer(5, 0, 2))
    walked = h.produce(data, acks=1)
    await settle()
    assert not walked.done() and h.context.held_batches.held_bytes == len(data)
    assert h.produce(keyed(1), acks=1).base_offset == 1
    assert result_of(await walked).base_offset == 2
    assert h.context.held_batches.held_bytes == 0


async def test_walked_batch_is_refused_when_its_predecessor_does_not_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = young_compacted()
    timers = Timers(h, monkeypatch)
    walked = h.produce(heavy(producer=Producer(5, 0, 2)), acks=1)
    await settle()
    assert timers.due_ms == [PREDECESSORS_MS]
    await timers.advance(PREDECESSORS_MS)
    assert result_of(await walked).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_record_walks_at_once_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the interpreter lock from the event loop."""
    h = compacted()
    running, most = 0, 0
    run = h.files.run

    async def counting(*args: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await settle()
        running -= 1
        return await run(*args)

    monkeypatch.setattr(h.files, "run", counting)
    waiting = [h.produce(heavy(producer=Producer(at, 0, 0)), acks=1) for at in range(9)]
    assert {result_of(await one).error_code for one in waiting} == {ErrorCode.NONE}
    assert most == held_batches.WALKS_MAX


def in_transaction(sequence: int) -> bytes:
    return batch(b"v", producer=Producer(5, 0, sequence, transactional=True))


def held_in_transaction(h: Harness, sequence: int) -> asyncio.Future[lines.HeldAppend]:
    """Hold a batch as Produce does for a request with a transactional id."""
    data = in_transaction(sequence)
    return h.context.held_batches.hold(h.partition(), data, 12, 1, transactional=True)


async def test_transactional_batches_wait_for_the_image_and_their_predecessors() -> None:
    """KIP-951: the waits of a new leader apply to batches of transactions, too."""
    h = follower()
    waiting = [held_in_transaction(h, at) for at in (0, 1)]
    h.change(leader=NODE)
    assert [(await one).info.first_offset for one in waiting] == [0, 1]
    h.change(leader=OTHER)
    h.change(leader=NODE)
    header = parse_header(in_transaction(3))
    assert h.context.held_batches.expects_predecessors(h.partition(), header, 100)
    ahead = held_in_transaction(h, 3)
    assert not ahead.done()
    h.clock.advance(PREDECESSORS_MS)
    with pytest.raises(ApiError) as refused:
        await ahead
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_release_of_many_batches_continues_in_slices_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that arrives between two slices queues behind the rest of its line."""
    h = follower()
    monkeypatch.setattr(held_batches, "SLICE_MS", 0.0)
    waiting = [h.produce(batch(b"v"), acks=1) for _ in range(3)]
    h.change(leader=NODE)
    assert h.partition().log.log_end_offset == 1
    waiting.append(h.produce(batch(b"v"), acks=1))
    assert sent(h, 0).base_offset == 1
    assert [result_of(await one).base_offset for one in waiting] == [0, 2, 3, 4]
    assert not h.context.held_batches.waiting


async def test_batch_whose_connection_has_closed_is_dropped() -> None:
    """The wait ends with its connection."""
    h = follower()
    waiting = h.produce(batch(b"a"), acks=1)
    await settle()
    waiting.cancel()
    await settle()
    h.change(leader=NODE)
    assert h.partition().log.log_end_offset == 0
    assert not h.context.held_batches.waiting


async def test_budget_is_one_for_all_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    h = compacted()
    h.create_topic("followed", number=2, replicas=[NODE, OTHER], leader=OTHER)
    waiting = h.produce(batch(b"a"), acks=1, topic="followed")
    monkeypatch.setattr(lines, "HELD_BYTES_MAX", len(heavy()))
    assert h.produce(heavy(), acks=1).error_code == ErrorCode.REQUEST_TIMED_OUT
    h.clock.advance(HOLD_MAX_MS)
    assert result_of(await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result_of(await h.produce(heavy(), acks=1)).error_code == ErrorCode.NONE


async def test_unforeseen_error_in_a_retry_refuses_only_its_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = follower()
    broken, passed = h.produce(batch(b"a"), acks=1), h.produce(batch(b"b"), acks=1)
    append, calls = h.replicas.append, 0

    def failing_once(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyError(7)
        return append(*args)

    monkeypatch.setattr(h.replicas, "append", failing_once)
    h.change(leader=NODE)
    assert result_of(await broken).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert result_of(await passed).base_offset == 0
    assert h.failures == [] and h.supervisor.survived == {"produced batch": 1}
