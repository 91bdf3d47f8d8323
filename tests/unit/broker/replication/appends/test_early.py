"""Batches that reach the next leader before its image does (KIP-951, P24)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.replication.appends import early as early_appends
from broker.replication.appends.early import (
    DEPOSED_MS,
    HOLD_MAX_MS,
    PREDECESSORS_MS,
    YOUNG_MS,
)
from broker.replication.reading.walk_limits import RECORDS_MAX
from protocol.batch.records import Producer, Record, build_batch
from protocol.errors import ErrorCode
from runtime.marks import counted
from testkit.memory.broker import NODE, OTHER, Harness, Peer, batch, settle

THIRD = 3


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
    assert h.context.early_appends.held_bytes == 0


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
    assert peer.kept_bytes == h.context.early_appends.held_bytes == len(data)
    data[:] = bytes(len(data))
    h.change(leader=NODE)
    assert result_of(await waiting).error_code == ErrorCode.NONE
    await settle()
    assert peer.kept_bytes == h.context.early_appends.held_bytes == 0


async def test_no_more_waits_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    h = follower()
    monkeypatch.setattr(early_appends, "HELD_BYTES_MAX", len(batch(b"a")))
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
    h.context.early_appends.close()
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
    assert h.context.early_appends.held_bytes == 0
    assert not h.context.early_appends.ahead


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
        monkeypatch.setattr(early_appends, "HELD_MAX", 1)
        assert isinstance(sent(h, 2), asyncio.Future)
    refused = sent(h, 3)
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [2**31 - 1, 3])
async def test_a_sequence_that_is_behind_is_not_waited_for(sequence: int) -> None:
    """The largest sequence precedes 0: such a batch is a repeated one, not an early one."""
    h = young_leader(known=5)
    assert sent(h, sequence).error_code != ErrorCode.UNKNOWN_SERVER_ERROR
    assert not h.context.early_appends.ahead


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
    assert timers.due_ms == [] and not h.context.early_appends.held_bytes


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
    assert not h.context.early_appends.expects(h.partition(), 10)
    h.change(leader=OTHER)
    h.clock.advance(DEPOSED_MS + 1)
    assert h.context.early_appends.expects(h.partition(), 10)
