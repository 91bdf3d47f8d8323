"""Fetches of data read off the event loop: in parallel, cancellable, with limits checked at the
end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from storage.files import File, MemoryFiles
from storage.log.log import Log
from testkit.memory.broker import NODE, OTHER, Harness, batch, fetch_request, settle
from tests.unit.broker.fetch.fetched import values


class GatedFiles(MemoryFiles):
    """A file system whose reads in workers wait until released, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: dict[str, asyncio.Future[None]] = {}
        self.cached: set[str] = set()
        self.asked: list[int] = []

    async def pread(self, file: File, size_bytes: int, position: int) -> bytes:
        folder = file.path.split("/")[-2]
        self.under_way[folder] = asyncio.get_running_loop().create_future()
        try:
            await self.under_way[folder]
        finally:
            del self.under_way[folder]
        return file.pread(size_bytes, position)

    def is_cached(self, file: File, size_bytes: int, position: int) -> bool:
        self.asked.append(size_bytes)
        return file.path.split("/")[-2] in self.cached

    async def let_go(self, *folders: str) -> None:
        for folder in folders or list(self.under_way):
            self.under_way[folder].set_result(None)
        await settle()


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every read miss the page cache."""
    monkeypatch.setattr(Log, "is_recent", lambda log, offset: False)


def filled(partitions: int = 1, **topic: Any) -> tuple[Harness, GatedFiles]:
    files = GatedFiles()
    h = Harness(files=files)
    h.create_topic(partitions=partitions, **topic)
    for index in range(partitions):
        assert h.produce(batch(b"v%d" % index), index=index).error_code == 0
    return h, files


def ask(h: Harness, partitions: int, **fields: Any) -> Any:
    request = fetch_request(0, **fields)
    request.topics[0].partitions = [
        FetchRequest.FetchPartition(partition=index, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    return h.call(request, 12)


def datas(response: Any) -> list[Any]:
    return [one for topic in response.responses for one in topic.partitions]


async def test_partitions_are_read_at_once_and_answered_in_order() -> None:
    h, files = filled(3)
    waiting = ask(h, 3)
    await settle()
    assert sorted(files.under_way) == ["t-0", "t-1", "t-2"]
    await files.let_go("t-2")
    await files.let_go("t-0")
    assert not waiting.done()
    await files.let_go("t-1")
    assert [values(one) for one in datas(waiting.result())] == [[b"v0"], [b"v1"], [b"v2"]]
    assert (len(h.waits.purgatory), len(h.supervisor)) == (0, 0)


async def test_fetch_of_cached_pages_needs_no_worker() -> None:
    h, files = filled(2)
    files.cached = {"t-0", "t-1"}
    assert [values(one) for one in datas(ask(h, 2))] == [[b"v0"], [b"v1"]]
    assert not files.under_way


async def test_one_partition_that_needs_the_disk_has_all_read_in_workers() -> None:
    h, files = filled(2)
    files.cached = {"t-0"}
    waiting = ask(h, 2)
    await settle()
    assert sorted(files.under_way) == ["t-0", "t-1"]
    await files.let_go()
    assert [values(one) for one in datas(waiting.result())] == [[b"v0"], [b"v1"]]


async def test_the_loop_reads_so_much_of_older_data_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h, files = filled(3)
    files.cached = {"t-0", "t-1", "t-2"}
    size = h.partition().log.segments.active.size_bytes
    monkeypatch.setattr("broker.fetch.reading.CACHED_BYTES_MAX", 3 * size)
    assert len(datas(ask(h, 3))) == 3
    monkeypatch.setattr("broker.fetch.reading.CACHED_BYTES_MAX", 3 * size - 1)
    files.asked.clear()
    waiting = ask(h, 3)
    await settle()
    assert len(files.under_way) == 3
    assert files.asked == [size, size]  # the third is too much, whatever is in the page cache
    await files.let_go()
    assert len(datas(waiting.result())) == 3


@pytest.mark.parametrize("limit", [0, -1, 1, 2**31 - 1])
async def test_any_limit_of_a_partition_is_answered(limit: int) -> None:
    h, files = filled()
    files.cached = {"t-0"}
    request = fetch_request(0)
    request.topics[0].partitions = [
        FetchRequest.FetchPartition(partition=0, partition_max_bytes=limit)
    ]
    assert values(datas(h.call(request, 12))[0]) == [b"v0"]


async def test_a_thousand_partitions() -> None:
    h, files = filled(1000)
    waiting = ask(h, 1000)
    await settle()
    assert len(files.under_way) == 1000
    await files.let_go()
    assert all(values(one) for one in datas(waiting.result()))


async def test_a_disk_that_is_late_costs_the_others_nothing_but_time() -> None:
    h, files = filled(2)
    waiting = ask(h, 2, max_wait_ms=500, min_bytes=1 << 20)
    await settle()
    await files.let_go("t-1")
    h.clock.advance(9_990)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    await settle()
    assert not waiting.done()
    h.clock.advance(15)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    await settle()
    late, there = datas(waiting.result())
    assert (late.error_code, late.records, late.high_watermark) == (0, b"", 1)
    assert values(there) == [b"v1"]
    assert (files.under_way, len(h.waits.purgatory), len(h.supervisor)) == ({}, 0, 0)


async def test_the_end_and_the_data_may_come_together() -> None:
    """The fetch then continues once: it waits for more bytes than it has."""
    h, files = filled()
    waiting = h.fetch(0, max_wait_ms=500, min_bytes=1 << 20)
    await settle()
    files.under_way["t-0"].set_result(None)
    await asyncio.sleep(0)
    h.clock.advance(10_005)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    await settle()
    assert len(h.waits.purgatory) == 1
    h.clock.advance(505)
    h.waits.purgatory.expire(h.clock.monotonic_ms())
    assert values(datas(await waiting)[0]) == [b"v0"]


async def test_cold_fetch_after_lost_leadership_is_refused() -> None:
    h, files = filled(replicas=[NODE, OTHER], isr=[NODE])
    waiting = h.fetch(0, version=10)
    await settle()
    h.change(leader=OTHER)
    await files.let_go()
    assert datas(waiting.result())[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_cold_fetch_of_records_deleted_during_read_is_out_of_range() -> None:
    h, files = filled()
    h.produce(batch(b"later"))
    waiting = h.fetch(0)
    await settle()
    h.partition().log.advance_log_start(1)
    await files.let_go()
    assert datas(waiting.result())[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_cold_fetch_omits_records_truncated_between_reads() -> None:
    h, files = filled(2)
    for index in range(2):
        h.produce(batch(b"later"), index=index)
    waiting = ask(h, 2)
    await settle()
    await files.let_go("t-0")
    h.partition().log.truncate_to(1)
    await files.let_go("t-1")
    assert [values(one) for one in datas(waiting.result())] == [[b"v0"], [b"v1", b"later"]]


async def test_a_disk_that_cannot_be_read_fails_its_partition_alone() -> None:
    h, files = filled(2)
    waiting = ask(h, 2)
    await settle()
    files.under_way["t-0"].set_exception(OSError(5, "EIO"))
    await files.let_go("t-1")
    failed, there = datas(waiting.result())
    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values(there) == [b"v1"]


async def test_cold_fetch_with_unexpected_error_fails_its_request() -> None:
    h, files = filled()
    waiting = h.fetch(0)
    await settle()
    files.under_way["t-0"].set_exception(RuntimeError("oh"))
    await settle()
    with pytest.raises(RuntimeError, match="oh"):
        waiting.result()


async def test_limits_hold_when_more_came_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data in the page cache is read when the response is built, and may have grown by then."""
    h, files = filled(2)
    at_hand = h.partition().log
    monkeypatch.setattr(Log, "is_recent", lambda log, offset: log is at_hand)
    h.produce(batch(b"x" * 300), index=1)
    waiting = ask(h, 2, max_bytes=600)
    await settle()
    h.produce(batch(b"y" * 300), index=0)
    await files.let_go()
    grown, cut = datas(waiting.result())
    assert values(grown) == [b"v0", b"y" * 300]
    assert 0 < len(cut.records) <= 600 - len(grown.records)
