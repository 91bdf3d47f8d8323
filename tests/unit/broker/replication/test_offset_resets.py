"""Where a follower goes on that its leader turned away: two questions, and the answer's limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.replication.offset_resets import EARLIEST, LATEST, ListOffsetsReset
from protocol.errors import ApiError, ErrorCode
from testkit.memory.replicas import Cluster


class Link:
    """A way to the leader's real handler."""

    def __init__(self, c: Cluster, before_answer: Callable[[], None] = lambda: None) -> None:
        self._cluster = c
        self._before_answer = before_answer
        self.asked: list[int] = []

    async def ask(self, message: Any) -> Any:
        self.asked.append(message.topics[0].partitions[0].timestamp)
        answer = self._cluster[1].call(message)
        self._before_answer()
        return answer


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
    await ListOffsetsReset(2).reset(link, partition, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert link.asked == [LATEST, EARLIEST]
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 2)


async def test_an_answer_of_another_epoch_touches_nothing() -> None:
    c = far_behind()
    link = Link(c, before_answer=lambda: c.change(2, leader=1))
    partition = c[2].partition()
    with pytest.raises(ApiError):  # the second question is of an epoch the leader does not know
        await ListOffsetsReset(2).reset(link, partition, ErrorCode.OFFSET_OUT_OF_RANGE)
    link = Link(c, before_answer=lambda: c.change(leader=1))
    c.catch_up()
    await ListOffsetsReset(2).reset(link, partition, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert partition.log.log_end_offset == 0


async def test_a_refusal_is_an_error_to_try_again_after() -> None:
    c = far_behind()
    c.change(1, leader=1)
    with pytest.raises(ApiError) as caught:
        await ListOffsetsReset(2).reset(
            Link(c), c[2].partition(), ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        )
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
