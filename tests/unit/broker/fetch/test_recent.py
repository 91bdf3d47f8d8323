"""Shared reads: one read for all fetches of the same part of a log."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from broker.fetch import recent as recent_module
from broker.fetch.recent import RecentRead
from protocol.batch.header import iter_batches
from storage.log.log import Log
from storage.log.reader import LogReader
from testkit.memory.broker import NODE, OTHER, Harness, batch, settle


async def test_fetches_that_wake_by_one_append_share_one_read() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    waiting = [h.fetch(0, max_wait_ms=500, replica_id=OTHER) for _ in range(2)]
    with mock.patch.object(LogReader, "read", autospec=True, side_effect=LogReader.read) as read:
        h.produce(batch(b"a"), acks=1)
        await settle()
        answers = [await one for one in waiting]
    assert read.call_count == 1
    assert len({bytes(one.responses[0].partitions[0].records) for one in answers}) == 1


def led(*values: bytes) -> Log:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    for value in values:
        h.produce(batch(value), acks=1)
    return h.partition().log


@pytest.mark.parametrize(
    "asked",
    [
        {"offset": 1},
        {"max_bytes": 1},
        {"max_offset": 1},
        {"min_one_batch": False, "max_bytes": 1},
    ],
)
async def test_another_question_has_its_own_answer(asked: dict[str, Any]) -> None:
    log, recent = led(b"a", b"b"), RecentRead()
    first: dict[str, Any] = {
        "offset": 0, "max_bytes": 1000, "max_offset": 2, "min_one_batch": True,
    }  # fmt: skip
    recent.read(log, **first)
    assert recent.read(log, **first | asked) == log.read(**first | asked) != log.read(**first)


async def test_recent_read_after_truncation_reads_again() -> None:
    log, recent = led(b"a", b"b"), RecentRead()
    ask: dict[str, Any] = {"offset": 0, "max_bytes": 1000, "max_offset": 2, "min_one_batch": True}
    recent.read(log, **ask)
    log.truncate_to(1)
    log.append_as_leader(bytearray(batch(b"c")), 5, 0)
    found = recent.read(log, **ask)
    assert [header.leader_epoch for header, _ in iter_batches(found)] == [0, 5]


async def test_another_log_of_the_same_shape_is_read_itself() -> None:
    recent = RecentRead()
    ask: dict[str, Any] = {"offset": 0, "max_bytes": 1000, "max_offset": 1, "min_one_batch": True}
    assert recent.read(led(b"a"), **ask) != recent.read(led(b"b"), **ask)


async def test_recent_read_keeps_no_large_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_module, "KEPT_BYTES_MAX", 10)
    log, recent = led(b"a"), RecentRead()
    with mock.patch.object(LogReader, "read", autospec=True, side_effect=LogReader.read) as read:
        for _ in range(2):
            recent.read(log, 0, 1000, max_offset=1, min_one_batch=True)
    assert read.call_count == 2
