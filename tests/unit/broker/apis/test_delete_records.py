"""DeleteRecords with followers: answered once all in-sync replicas have the new log start."""

from __future__ import annotations

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest
from testkit.memory.replicas import Cluster


def delete(c: Cluster, offset: int) -> Any:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[wanted])
    return c[1].call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000))


def result(response: Any) -> tuple[int, int]:
    data = response.topics[0].partitions[0]
    return data.error_code, data.low_watermark


async def test_deleting_is_answered_when_all_in_sync_replicas_have_done_it() -> None:
    c = Cluster()
    c.create(1, 2, 3, isr=[1, 2])
    c[1].append(b"a", b"b", b"c")
    c.fetch(2, times=2)
    waiting = delete(c, 2)
    assert not waiting.done()
    c.fetch(2)  # the follower learns the new log start
    assert c[2].log.log_start_offset == 2
    c.fetch(2)  # and reports it
    assert result(await waiting) == (ErrorCode.NONE, 2)
    assert result(delete(c, 1)) == (ErrorCode.NONE, 2)


async def test_deleting_does_not_wait_for_a_member_that_leaves() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    waiting = delete(c, 1)
    c.change(isr=[1])
    assert result(await waiting) == (ErrorCode.NONE, 1)


async def test_deleting_times_out_and_fails_with_leadership() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    waiting = delete(c, 1)
    c.clock.advance(1005)
    c[1].waits.purgatory.expire(c.clock.monotonic_ms())
    assert result(await waiting) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    waiting = delete(c, 1)
    c.change(leader=2)
    assert result(await waiting) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
