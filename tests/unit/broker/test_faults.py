"""Faults around the handlers of a broker."""

from __future__ import annotations

import asyncio

import pytest

from broker.faults import plant_faults
from protocol.api_keys import ApiKey
from testkit.memory.broker import NODE, OTHER, Harness, batch


@pytest.mark.parametrize("acks", ["none", "leader"])
async def test_acks_all_is_answered_before_the_follower_has_the_records(acks: str) -> None:
    h = Harness(kraftbox_fault_acks=acks)
    h.create_topic(replicas=[NODE, OTHER], isr=[NODE, OTHER])
    plant_faults(h.table, h.config)
    reply = h.produce(batch(b"a"), acks=-1)
    assert isinstance(reply, asyncio.Future) is (acks == "none")
    assert h.partition().log.high_watermark == 0
    if acks == "leader":
        assert (reply.error_code, reply.base_offset) == (0, 0)
    assert h.produce(batch(b"a"), acks=0) is None
    assert h.produce(batch(b"a"), acks=1).base_offset == 2


async def test_nothing_is_wrapped_without_a_fault() -> None:
    h = Harness()
    handler = h.table.entries[ApiKey.PRODUCE].handler
    plant_faults(h.table, h.config)
    assert h.table.entries[ApiKey.PRODUCE].handler == handler
