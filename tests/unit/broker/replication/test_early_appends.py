"""Batches that come to the next leader before its image does (KIP-951, P24)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.replication import early_appends
from broker.replication.early_appends import DEPOSED_MS, HOLD_MAX_MS
from broker.replication.walk_limits import RECORDS_MAX
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


async def test_its_time_is_short_and_the_refusal_says_who_leads() -> None:
    h = follower()
    waiting = h.produce(batch(b"a"))
    h.clock.advance(HOLD_MAX_MS)
    result = result_of(await waiting)
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader.leader_id == OTHER
    assert h.partition().counters.failed_produces == 1
    assert h.context.early_appends.held_bytes == 0


async def test_who_led_a_moment_ago_refuses_at_once() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    assert h.produce(batch(b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    h.clock.advance(DEPOSED_MS + 1)
    waiting = h.produce(batch(b"a"), acks=1)
    h.change(leader=NODE)
    assert result_of(await waiting).error_code == ErrorCode.NONE


async def test_who_led_before_the_leader_before_lets_it_wait() -> None:
    """Leadership goes round and comes back: who asks has heard of the last move already."""
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


async def test_who_has_no_replica_refuses_at_once() -> None:
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


async def test_a_topic_that_is_deleted_meanwhile_is_refused() -> None:
    h = follower()
    waiting = h.produce(batch(b"a"))
    h.delete_topic()
    assert result_of(await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_node_that_stops_lets_nobody_wait() -> None:
    h = follower()
    waiting = h.produce(batch(b"a"))
    h.context.early_appends.close()
    assert result_of(await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
