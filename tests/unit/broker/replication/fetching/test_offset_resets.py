"""Offset resets of a follower that its leader refused: two lookups, and bounds of the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.replication.fetching.fetcher import Reset
from broker.replication.fetching.offset_resets import EARLIEST, LATEST, ListOffsetsReset
from protocol.errors import ApiError, ErrorCode
from testkit.memory.replicas import Cluster


class Link:
    """A link to the leader's real handler."""

    def __init__(self, c: Cluster, before_answer: Callable[[], None] = lambda: None) -> None:
        self._cluster = c
        self._before_answer = before_answer
        self.asked: list[int] = []

    async def ask(self, message: Any) -> Any:
        self.asked.append(message.topics[0].partitions[0].timestamp)
        answer = self._cluster[1].call(message)
        self._before_answer()
        return answer


def wanted(
    c: Cluster, error: ErrorCode = ErrorCode.OFFSET_OUT_OF_RANGE, leader_log_start: int = -1
) -> Reset:
    partition = c[2].partition()
    return Reset(partition, error, partition.leader_epoch, leader_log_start)


def far_behind() -> Cluster:
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    for value in (b"a", b"b", b"c"):
        c[1].append(value)
    c[1].log.advance_log_start(2)
    return c


async def test_the_log_begins_where_the_leaders_does() -> None:
    c = far_behind()
    link = Link(c)
    partition = c[2].partition()
    await ListOffsetsReset(2).reset(link, wanted(c))
    assert link.asked == [LATEST, EARLIEST]
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 2)


async def test_offset_reset_with_a_known_leader_start_queries_only_the_latest() -> None:
    c = far_behind()
    link = Link(c)
    log = c[2].partition().log
    await ListOffsetsReset(2).reset(link, wanted(c, leader_log_start=1))
    assert link.asked == [LATEST]
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


async def test_a_leader_epoch_that_began_since_the_refusal_touches_nothing() -> None:
    c = far_behind()
    old = wanted(c)
    c.change(leader=1)
    await ListOffsetsReset(2).reset(Link(c), old)
    assert c[2].partition().log.log_end_offset == 0


async def test_an_answer_of_another_epoch_touches_nothing() -> None:
    c = far_behind()
    link = Link(c, before_answer=lambda: c.change(2, leader=1))
    partition = c[2].partition()
    with pytest.raises(ApiError):  # the second lookup is of an epoch that the leader does not know
        await ListOffsetsReset(2).reset(link, wanted(c))
    link = Link(c, before_answer=lambda: c.change(leader=1))
    c.catch_up()
    await ListOffsetsReset(2).reset(link, wanted(c))
    assert partition.log.log_end_offset == 0


async def test_a_refusal_is_an_error_to_try_again_after() -> None:
    c = far_behind()
    c.change(1, leader=1)
    with pytest.raises(ApiError) as caught:
        await ListOffsetsReset(2).reset(
            Link(c), wanted(c, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        )
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
