"""Plans of reads off the event loop: the slices of a fetch and their sizes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from broker.fetch.reading import (
    ColdData,
    ColdSlice,
    Place,
    RemoteRange,
    Wish,
    fitted,
    place_of,
    plan_reads,
    still_holds,
)
from broker.replication.sessions.fetch_session import PartitionKey
from protocol.batch.header import HEADER_BYTES
from storage.log.log import Log
from testkit.memory.broker import Harness, batch

MIB = 1 << 20


def plan(wished: Iterable[Wish], max_bytes: int) -> dict[PartitionKey, ColdSlice]:
    """Plan reads without a remote tier."""
    planned = plan_reads(wished, max_bytes, remote=False)
    return {key: one for key, one in planned.items() if isinstance(one, ColdSlice)}


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every read miss the page cache."""
    monkeypatch.setattr(Log, "is_recent", lambda log, offset: False)


def harness(*sizes: int) -> Harness:
    """Return a topic with a partition per size, each of two batches with a value of that size."""
    h = Harness()
    h.create_topic(partitions=len(sizes))
    for index, size in enumerate(sizes):
        for _ in range(2):
            h.produce(batch(b"v" * size), index=index)
    return h


def wishes(h: Harness, *, offset: int = 0, max_bytes: int = MIB) -> list[Wish]:
    return [
        Wish(("t", one.index), one, offset, max_bytes, one.log.high_watermark) for one in h.replicas
    ]


async def test_place_of_offset_is_here_cold_or_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    h = harness(10)
    log = h.partition().log
    assert [place_of(log, offset) for offset in (-1, 0, 1, 2, 3, 2**63 - 1)] == [Place.LOCAL] * 6
    monkeypatch.setattr(Log, "is_recent", lambda log, offset: False)
    places = [place_of(log, offset) for offset in (-1, 0, 1, 2, 2**63 - 1)]
    assert places == [Place.LOCAL, Place.COLD, Place.COLD, Place.LOCAL, Place.LOCAL]
    log.bounds.local_log_start_offset = 1
    assert [place_of(log, offset) for offset in (0, 1)] == [Place.REMOTE, Place.COLD]
    log.bounds.log_start_offset = 1
    assert place_of(log, 0) is Place.LOCAL, "it is out of range"


@pytest.mark.usefixtures("cold")
async def test_one_budget_in_the_order_of_the_request() -> None:
    h = harness(500, 500, 500)
    size = h.partition().log.size_bytes
    planned = plan(wishes(h), size + 100)
    assert [(key, one.max_bytes, one.whole_first) for key, one in planned.items()] == [
        (("t", 0), size + 100, True),
        (("t", 1), 100, False),
    ]
    assert [one.max_bytes for one in plan(wishes(h, max_bytes=70), MIB).values()] == [70] * 3


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31), 1])
async def test_the_first_batch_is_read_whatever_the_limits(max_bytes: int) -> None:
    h = harness(500, 500)
    for planned in (
        plan(wishes(h), max_bytes),
        plan(wishes(h, max_bytes=max_bytes), max_bytes),
    ):
        assert [one.whole_first for one in planned.values()] == [True]


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("offset", [-1, 2, 3, 2**63 - 1, -(2**63)])
async def test_nothing_is_read_where_nothing_is(offset: int) -> None:
    assert plan(wishes(harness(10), offset=offset), MIB) == {}


async def test_fetch_plan_subtracts_recent_data_from_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h = harness(500, 500)
    first = h.partition(index=0).log
    monkeypatch.setattr(Log, "is_recent", lambda log, offset: log is first)
    planned = plan(wishes(h), first.size_bytes + 30)
    assert [(key, one.max_bytes, one.whole_first) for key, one in planned.items()] == [
        (("t", 1), 30, False)
    ]
    assert plan(wishes(h), first.size_bytes) == {}


@pytest.mark.usefixtures("cold")
async def test_a_remote_range_takes_all_of_its_limit() -> None:
    h = harness(500, 500, 500)
    in_tier = h.partition(index=1).log
    in_tier.bounds.local_log_start_offset = 1
    size = in_tier.size_bytes
    planned = plan_reads(wishes(h, max_bytes=size), 2 * size + 10, remote=True)
    assert [(key[1], type(one), one.max_bytes) for key, one in planned.items()] == [
        (0, ColdSlice, size),
        (1, RemoteRange, size),
        (2, ColdSlice, 10),
    ]
    assert [key[1] for key in plan_reads(wishes(h), size, remote=True)] == [0]
    assert [key[1] for key in plan_reads(wishes(h), MIB, remote=False)] == [0, 2]
    remotes = wishes(h)[1:2]
    for max_bytes in (0, -1, 1):
        (one,) = plan_reads(remotes, max_bytes, remote=True).values()
        assert one.max_bytes == max(0, max_bytes)


async def test_cold_data_is_checked_against_current_log() -> None:
    h = harness(10)
    log = h.partition().log
    data = ColdData(log, log.segments.generation, b"data")
    assert still_holds(data, log, 0)
    log.advance_log_start(1)
    assert (still_holds(data, log, 0), still_holds(data, log, 1)) == (False, True)
    log.truncate_to(1)
    assert not still_holds(data, log, 1)
    assert not still_holds(data._replace(generation=log.segments.generation), Log.__new__(Log), 1)


def test_batches_are_cut_to_a_limit_and_the_first_is_whole_or_not_there() -> None:
    one, two = batch(b"a" * 100), batch(b"b" * 100)
    both = one + two
    for whole_first in (True, False):
        assert fitted(both, len(both), whole_first=whole_first) == both
        assert fitted(both, len(one) + 7, whole_first=whole_first) == both[: len(one) + 7]
        assert fitted(both, len(one), whole_first=whole_first) == one
        assert fitted(b"", 0, whole_first=whole_first) == b""
    for limit in (0, 1, HEADER_BYTES, len(one) - 1):
        assert fitted(both, limit, whole_first=True) == one
        assert fitted(both, limit, whole_first=False) == b""
    assert fitted(both[: HEADER_BYTES - 1], 1, whole_first=True) == b""
