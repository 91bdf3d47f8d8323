"""Shared requests: many replicas look up log bounds at one leader in one request."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.replication.fetching.leader_questions import ASKED_TOGETHER_MAX, LeaderQuestions
from broker.replication.partition.partition import Partition
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

LATEST, PENDING = -1, -6


def partition(index: int, leader_epoch: int = 3) -> Partition:
    return cast(Partition, SimpleNamespace(topic="t", index=index, leader_epoch=leader_epoch))


class Leader:
    """A leader that answers on release: offset 100 + index, epoch end 200 + index."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.go = asyncio.Event()
        self.failure: Exception | None = None
        self.leaves_out: set[int] = set()
        self.refused: dict[int, ErrorCode] = {}

    @property
    def named(self) -> list[int]:
        return [len(request.topics[0].partitions) for request in self.requests]

    async def ask(self, request: Any) -> Any:
        self.requests.append(request)
        await self.go.wait()
        if self.failure is not None:
            raise self.failure
        (topic,) = request.topics
        if isinstance(request, ListOffsetsRequest):
            indexes = [one.partition_index for one in topic.partitions]
            assert len(set(indexes)) == len(indexes), "INVALID_REQUEST"
            offsets = [
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=index,
                    offset=100 + index,
                    error_code=self.refused.get(index, ErrorCode.NONE),
                )
                for index in indexes
                if index not in self.leaves_out
            ]
            answered = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=offsets)
            return ListOffsetsResponse(topics=[answered])
        ends = [
            OffsetForLeaderEpochResponse.EpochEndOffset(
                partition=one.partition, leader_epoch=one.leader_epoch, end_offset=200
            )
            for one in topic.partitions
        ]
        found = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic="t", partitions=ends)
        return OffsetForLeaderEpochResponse(topics=[found])


def ask_all(leader: Leader, count: int) -> list[asyncio.Task[Any]]:
    questions = LeaderQuestions(2)
    asking = (questions.offset(leader, partition(index), PENDING) for index in range(count))
    return [asyncio.ensure_future(one) for one in asking]


async def test_questions_during_a_request_are_batched_into_the_next() -> None:
    leader = Leader()
    tasks = ask_all(leader, ASKED_TOGETHER_MAX + 11)
    await asyncio.sleep(0)
    leader.go.set()
    answers = await asyncio.gather(*tasks)
    assert [one.offset for one in answers] == [100 + index for index in range(len(tasks))]
    assert leader.named == [1, ASKED_TOGETHER_MAX, 10]
    asked = leader.requests[1].topics[0].partitions[0]
    assert (asked.partition_index, asked.timestamp, asked.current_leader_epoch) == (1, PENDING, 3)


async def test_each_kind_of_question_has_its_own_requests() -> None:
    leader, questions = Leader(), LeaderQuestions(2)
    leader.go.set()
    latest, pending, end = await asyncio.gather(
        questions.offset(leader, partition(1), LATEST),
        questions.offset(leader, partition(1), PENDING),
        questions.end_of_epoch(leader, partition(1), 2),
    )
    assert (latest.offset, pending.offset, end.end_offset, end.leader_epoch) == (101, 101, 200, 2)
    assert leader.named == [1, 1, 1]


async def test_a_partition_is_named_once_in_a_request() -> None:
    """A replica under another leader epoch may send a lookup while its earlier one is pending."""
    leader, questions = Leader(), LeaderQuestions(2)
    first = asyncio.ensure_future(questions.offset(leader, partition(0), PENDING))
    twice = [
        asyncio.ensure_future(questions.offset(leader, partition(1, epoch), PENDING))
        for epoch in (3, 4)
    ]
    await asyncio.sleep(0)
    leader.go.set()
    await asyncio.gather(first, *twice)
    assert leader.named == [1, 1, 1]
    epochs = [one.topics[0].partitions[0].current_leader_epoch for one in leader.requests]
    assert epochs == [3, 3, 4]


@pytest.mark.parametrize("failure", [OSError("gone"), ApiError(ErrorCode.REQUEST_TIMED_OUT, None)])
async def test_failed_request_fails_every_question_in_it(failure: Exception) -> None:
    leader = Leader()
    leader.failure = failure
    leader.go.set()
    found = await asyncio.gather(*ask_all(leader, 3), return_exceptions=True)
    assert [type(one) for one in found] == [type(failure)] * 3
    leader.failure = None
    (answer,) = await asyncio.gather(*ask_all(leader, 1))
    assert answer.offset == 100


async def test_a_refusal_or_no_answer_is_that_partitions_own() -> None:
    leader = Leader()
    leader.go.set()
    leader.refused[1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.leaves_out = {2}
    good, refused, left_out = await asyncio.gather(*ask_all(leader, 3), return_exceptions=True)
    assert good.offset == 100
    assert refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert left_out.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_cancelled_questions_do_not_delay_the_others() -> None:
    leader = Leader()
    first, second, third = ask_all(leader, 3)
    await asyncio.sleep(0)
    first.cancel()  # its request is on its way
    second.cancel()  # it waits
    await asyncio.sleep(0)
    leader.go.set()
    assert (await third).offset == 102
    assert leader.named == [1, 1]
